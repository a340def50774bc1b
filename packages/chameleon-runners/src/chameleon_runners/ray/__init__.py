"""The runner ``ray``: builders and devices are actors of a Ray cluster.

Inside this package ``import ray`` finds Ray itself: imports are absolute. Nothing but the modules
that run once a cluster is used imports it.
"""
