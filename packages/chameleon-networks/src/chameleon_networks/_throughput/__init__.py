"""Measures how networks serve several clients at once, compared with other frameworks."""
