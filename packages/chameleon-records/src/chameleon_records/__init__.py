"""Record databases: runs on machines of the same kind reuse each other's measurements.

The key ``records`` of a pipeline names one or more databases. ``chameleon records`` shows, merges
and prunes them.
"""
