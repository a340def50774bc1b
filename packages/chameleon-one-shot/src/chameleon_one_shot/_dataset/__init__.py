"""Data sets of measured candidates: their format, their collection, and imports."""
