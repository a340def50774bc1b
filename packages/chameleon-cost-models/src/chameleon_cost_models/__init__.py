"""Chameleon: cost models."""
