"""Checks of a network before tuning: whether it compiles, has right outputs, and may be padded."""
