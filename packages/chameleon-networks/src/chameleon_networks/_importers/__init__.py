"""Importers: read a network from a builtin, PyTorch or ONNX source into TVM's graph language."""
