"""Networks from PyTorch."""
