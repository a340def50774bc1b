"""Adaptive exploration: an actor-critic learns to walk a design space (Ahn et al. 2020)."""
