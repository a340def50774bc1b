"""Searches in recorded tables instead of on hardware: a frontend, a space and a runner."""
