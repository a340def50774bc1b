"""Kernels that this process builds and that other processes or devices load and time."""
