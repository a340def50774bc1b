"""Imports measurements of other tools. Only data are read; no code is run."""
