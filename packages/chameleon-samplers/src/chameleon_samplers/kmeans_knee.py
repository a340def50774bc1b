"""CHAMELEON's adaptive sampling: one configuration stands for each cluster of candidates."""

from __future__ import annotations

import numpy as np
from chameleon_core.space import Configs
from chameleon_core.stages import Candidates, Sampler, StageContext, Visited
from numpy.typing import NDArray

from chameleon_samplers.clustering import Clusters, KneeSearch, Points
from chameleon_samplers.options import KMeansKneeOptions

_WIDEST = 2
"""Knobs the released code clusters by."""


class KMeansKneeSampler(Sampler):
    """Measures one configuration per cluster, with as many clusters as the knee of the loss.

    Ahn et al., "Chameleon" (2020), section 3.2 and Algorithm 1. A batch is smaller than asked for
    wherever few clusters describe the candidates, which is the point: fewer measurements.
    """

    def __init__(self, options: KMeansKneeOptions, context: StageContext) -> None:
        self._options = options
        self._rng = context.rng
        cardinalities = context.space.cardinalities
        self._columns = np.arange(len(cardinalities))
        if options.knobs == "widest":
            self._columns = np.sort(np.argsort(-cardinalities, kind="stable")[:_WIDEST])
        self._scale = np.ones(len(self._columns))
        if options.scaled:
            self._scale = np.maximum(cardinalities[self._columns] - 1, 1).astype(np.float64)

    def select(self, candidates: Candidates, visited: Visited, count: int) -> Configs:
        """One row per cluster, the best-scored cluster first.

        With ``representative: floor`` rows may be illegal, measured before or there twice, as in
        the paper; the synthesizer replaces them.
        """
        kept = visited.fresh(candidates.configs)
        configs, scores = candidates.configs[kept], candidates.scores[kept]
        if not len(configs) or count < 1:
            return configs[:0]
        points = configs[:, self._columns] / self._scale
        clusters = KneeSearch(self._counts(count), self._options.threshold, self._rng).run(points)
        order = np.argsort(-scores, kind="stable")
        # Clusters are sorted by the rank of their best candidates.
        _, first = np.unique(clusters.labels[order], return_index=True)
        ranking = clusters.labels[order][np.sort(first)]
        if self._options.representative == "floor":
            return self._floored(configs, clusters.labels, ranking)[:count]
        if self._options.representative == "best":
            return configs[order[np.sort(first)]][:count]
        return configs[self._nearest(points, clusters, ranking)][:count]

    def _counts(self, count: int) -> list[int]:
        """Numbers of clusters to try, none above the size of a batch."""
        options = self._options
        largest = min(options.largest, count)
        return list(range(min(options.smallest, largest), largest + 1, options.step))

    @staticmethod
    def _floored(configs: Configs, labels: NDArray[np.intp], ranking: NDArray[np.intp]) -> Configs:
        """The means of the clusters in all knobs, rounded down, shape (k, knobs)."""
        means = np.array([configs[labels == label].mean(axis=0) for label in ranking.tolist()])
        floored: Configs = np.floor(means).astype(np.int32)
        return floored

    @staticmethod
    def _nearest(points: Points, clusters: Clusters, ranking: NDArray[np.intp]) -> NDArray[np.intp]:
        """Row of the candidate nearest to each centroid among the cluster's own, shape (k,)."""
        away = np.square(points - clusters.centroids[clusters.labels]).sum(axis=1)
        order = np.lexsort([away, clusters.labels])
        present, first = np.unique(clusters.labels[order], return_index=True)
        nearest = np.empty(len(clusters), np.intp)
        nearest[present] = order[first]
        rows: NDArray[np.intp] = nearest[ranking]
        return rows
