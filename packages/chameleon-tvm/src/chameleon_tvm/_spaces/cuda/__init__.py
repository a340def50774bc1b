"""Hand-written templates for CUDA targets."""
