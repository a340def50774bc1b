"""The runner ``ray``, whose builders and devices are actors of a Ray cluster.

Only modules that run after the process has joined a cluster import Ray.
"""
