"""Chooses dtypes for a network's operators by their speed and their error."""
