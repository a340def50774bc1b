"""Hand-written templates for CPU targets."""
