"""Builds kernels of scheduled functions, for this machine and for other machines.

The package also writes listings of winners: files with a kernel's TensorIR and assembly code.
"""
