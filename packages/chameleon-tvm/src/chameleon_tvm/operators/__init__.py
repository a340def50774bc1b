"""Operators as tasks. Empty, so that checking a pipeline file imports ``specs`` alone."""
