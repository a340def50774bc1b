"""Types that a network's operators are computed in, and what each costs in accuracy."""
