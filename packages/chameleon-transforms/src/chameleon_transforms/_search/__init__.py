"""Searches transformed networks by latency and scores."""
