"""Builds kernels of scheduled functions, for this machine and for others, and their listings."""
