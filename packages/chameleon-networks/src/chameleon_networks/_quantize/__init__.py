"""Computes networks in smaller dtypes: ranges, rounding and simulation."""
