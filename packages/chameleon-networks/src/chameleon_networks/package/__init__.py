"""The folder that a network is delivered in, and what loads it."""
