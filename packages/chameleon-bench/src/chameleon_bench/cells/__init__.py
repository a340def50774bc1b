"""Cells: one pipeline on one task with one seed, run once and kept as a trajectory."""
