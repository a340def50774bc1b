"""Searching transformed networks for latency and scores."""
