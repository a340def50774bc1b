"""The runner ``ray``, whose builders and devices are actors of a Ray cluster.

Only modules that run after a cluster is joined import Ray. In this package, ``import ray`` imports
Ray itself, since imports are absolute.
"""
