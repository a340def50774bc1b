"""The end of a run: compiles a network with the fastest kernels, verifies it and times it."""
