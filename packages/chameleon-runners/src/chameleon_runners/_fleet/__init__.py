"""Measuring on many devices at the same time: GPUs, remote boards or nodes of a cluster.

Builders export kernels to folders (artifacts), and device workers load and time them.
"""
