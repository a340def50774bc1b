"""Builds scheduled functions: as kernels, libraries, listings, and kernels for other machines."""
