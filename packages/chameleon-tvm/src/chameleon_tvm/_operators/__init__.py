"""Operators as tasks. This file imports nothing, so that checks of pipeline files are fast."""
