"""Baselines from vendors' libraries, which users would call without Chameleon."""
