"""Kernels on devices that are not this process's own: built here, loaded and timed there."""
