"""Whole networks: from PyTorch or ONNX to Relax, and what there is to tune in one."""
