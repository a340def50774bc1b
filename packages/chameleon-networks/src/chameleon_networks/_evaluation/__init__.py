"""Runs networks in separate processes, to verify, time and profile them."""
