"""What else runs a network: torch, ONNX Runtime, OpenVINO, and in which precision."""
