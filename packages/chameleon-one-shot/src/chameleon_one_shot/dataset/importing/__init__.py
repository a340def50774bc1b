"""Imports of what others have measured; only data are read, no code is run."""
