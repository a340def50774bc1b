"""Hand-written templates for llvm targets."""
