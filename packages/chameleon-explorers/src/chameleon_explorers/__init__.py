"""Chameleon: explorers."""
