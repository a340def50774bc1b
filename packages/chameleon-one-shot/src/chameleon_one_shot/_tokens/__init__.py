"""Describes configurations of a task on a device as tokens with named numbers."""
