"""Machine instructions that templates multiply with: each its meaning, its emission, its needs."""
