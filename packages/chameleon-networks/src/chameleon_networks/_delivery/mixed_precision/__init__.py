"""Deliveries whose operators are computed in chosen dtypes."""
