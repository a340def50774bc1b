"""Registers this package's plugins."""
