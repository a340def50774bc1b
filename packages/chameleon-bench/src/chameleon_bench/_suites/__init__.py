"""Suites, and how suite files are read."""
