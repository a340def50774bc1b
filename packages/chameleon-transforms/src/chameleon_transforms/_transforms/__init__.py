"""The transforms of this package."""
