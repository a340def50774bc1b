"""Chameleon: runners."""
