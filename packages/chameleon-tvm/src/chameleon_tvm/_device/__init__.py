"""Devices: targets, CPUs and GPUs, and the linker for each."""
