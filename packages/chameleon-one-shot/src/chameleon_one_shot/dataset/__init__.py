"""Data sets of measured candidates: their format, collection, and import."""
