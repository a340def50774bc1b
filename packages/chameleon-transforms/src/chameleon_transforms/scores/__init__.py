"""Judging a network at its initialisation."""
