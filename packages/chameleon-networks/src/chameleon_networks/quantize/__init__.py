"""Networks computed in smaller dtypes: ranges, rounding and simulation."""
