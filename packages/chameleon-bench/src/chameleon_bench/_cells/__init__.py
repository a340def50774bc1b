"""Cells of a suite. A cell is one run of one pipeline on one task with one seed."""
