"""Schedules for TensorIR functions that are loops over arrays, other than matrix products."""
