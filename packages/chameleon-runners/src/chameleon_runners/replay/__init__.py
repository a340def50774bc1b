"""Recorded tables that stand in for hardware: frontend, space and runner."""
