"""Recorded tables in place of hardware: a frontend, a space and a runner."""
