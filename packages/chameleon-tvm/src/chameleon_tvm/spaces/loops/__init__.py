"""Schedules of functions that are loops over arrays and no products of matrices."""
