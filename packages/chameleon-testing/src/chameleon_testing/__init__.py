"""Checks for those who write plugins: what every stage must do, whoever wrote it."""
