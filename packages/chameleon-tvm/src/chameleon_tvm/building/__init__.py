"""Scheduled functions built: kernels, libraries, listings, and kernels for other machines."""
