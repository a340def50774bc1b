"""Chameleon under the interfaces of others: ``torch.compile`` and ONNX's backends."""
