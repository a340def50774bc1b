"""Search algorithms: simulated annealing and random search, and the presets built on them."""
