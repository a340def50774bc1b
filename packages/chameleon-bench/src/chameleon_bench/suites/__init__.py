"""Suites, and how their files are read."""
