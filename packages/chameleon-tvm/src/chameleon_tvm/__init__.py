"""Kernels for Chameleon: operators, instructions, design spaces, and building with TVM."""
