"""Cells of a suite: each is one run of one pipeline on one task with one seed."""
