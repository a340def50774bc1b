"""The explorer `hill-climb`."""

import numpy as np
from chameleon_core.plugin_api import Candidates, Explorer


class HillClimb(Explorer):
    """Proposes what is one step in one knob away from the best measured configurations.

    Where all of these were measured, it starts again from random configurations.
    """

    def __init__(self, options, context):
        self.options, self.space, self.rng = options, context.space, context.rng
        self.best = []

    def explore(self, score, visited, count):
        steps = [self.rng.permutation(self.space.neighbours(start)) for start in self.best]
        random = visited.sample(count, self.rng)
        configs = self.space.distinct(np.concatenate([*steps, random]))
        configs = configs[visited.unvisited(configs)][:count]
        # Candidates are ranked by where they come from: the neighbours of the best one first.
        return Candidates(configs=configs, scores=-np.arange(len(configs), dtype=float), steps=1)

    def observe(self, observations):
        worked = np.flatnonzero(np.isfinite(observations.costs))
        order = worked[np.argsort(observations.costs[worked], kind="stable")]
        self.best = observations.configs[order[: self.options.starts]].tolist()
