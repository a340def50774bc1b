"""Design spaces: knobs, legality, features and moves, all as arrays."""
