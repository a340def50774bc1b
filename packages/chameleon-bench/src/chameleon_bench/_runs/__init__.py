"""Compares run folders, and serves the page of a run while it goes on."""
