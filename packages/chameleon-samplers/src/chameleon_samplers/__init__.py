"""Chameleon: samplers."""
