"""Checks for those who write operators and templates."""
