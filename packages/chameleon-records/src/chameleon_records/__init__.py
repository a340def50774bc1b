"""Record databases: measurements of one machine that runs on another machine of its kind can reuse.

The key ``records`` of a pipeline names one or more databases. ``chameleon records`` shows, merges
and prunes them.
"""
