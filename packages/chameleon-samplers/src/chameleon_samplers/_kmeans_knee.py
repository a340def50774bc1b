"""Chameleon's adaptive sampling, which measures one configuration per cluster of candidates."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Sequence

import attrs
import numpy as np
from chameleon_core.plugin_api import Candidates, Configs, Sampler, StageContext, Visited
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import ThreadpoolController

from chameleon_samplers._options import KMeansKneeOptions

_ITERATIONS = 25
"""The largest number of Lloyd's iterations per clustering, which starts near a solution."""

Points = NDArray[np.float64]


@functools.cache
def _pools() -> ThreadpoolController:
    """The thread pools of this process, cached since finding them takes a millisecond."""
    return ThreadpoolController()


@attrs.frozen(kw_only=True, eq=False)
class Clusters:
    """The result of clustering n points into k clusters.

    Attributes:
        labels: The cluster of every point, shape (n,).
        centroids: The centroid of every cluster, shape (k, dimensions).
        loss: The sum of squared distances between the points and their centroids.
    """

    labels: NDArray[np.intp]
    centroids: Points
    loss: float

    def __len__(self) -> int:
        return len(self.centroids)


def is_past_knee(loss: float, previous: float, threshold: float) -> bool:
    """Whether more clusters no longer help (Ahn et al. 2020, Algorithm 1, line 5)."""
    return threshold * loss >= previous


class KneeSearch:
    """Chooses a number of clusters at the knee of the loss (Ahn et al. 2020, Algorithm 1)."""

    def __init__(self, counts: Sequence[int], threshold: float, rng: np.random.Generator) -> None:
        self._counts = counts
        self._threshold = threshold
        self._rng = rng

    def run(self, points: Points) -> Clusters:
        """Cluster points, shape (n, dimensions), with more and more clusters up to the knee."""
        distinct = len(np.unique(points, axis=0))
        # With fewer distinct points than the smallest number, each point is a cluster.
        counts = sorted({min(count, distinct) for count in self._counts})
        centroids = self._add_centroids(points, np.empty((0, points.shape[1])), counts[0])
        previous = np.inf
        # One thread: for so few points, distributing work costs more than doing it.
        with _pools().limit(limits=1):
            for count in counts:
                centroids = self._add_centroids(points, centroids, count)
                clusters = self._lloyd(points, centroids)
                if is_past_knee(clusters.loss, previous, self._threshold):
                    break
                previous, centroids = clusters.loss, clusters.centroids
        return clusters

    def _add_centroids(self, points: Points, centroids: Points, count: int) -> Points:
        """Add centroids, drawn from points by the squared distance to the nearest centroid."""
        if not len(centroids):
            centroids = points[[self._rng.integers(len(points))]]
        squares = np.square(points[:, None] - centroids).sum(axis=2).min(axis=1)
        while len(centroids) < count and squares.any():
            drawn = points[self._rng.choice(len(points), p=squares / squares.sum())]
            centroids = np.concatenate([centroids, drawn[None]])
            squares = np.minimum(squares, np.square(points - drawn).sum(axis=1))
        return centroids

    @staticmethod
    def _lloyd(points: Points, centroids: Points) -> Clusters:
        model = KMeans(len(centroids), init=centroids, n_init=1, max_iter=_ITERATIONS)
        with warnings.catch_warnings():
            # Equal points leave clusters empty, which does no harm here.
            warnings.simplefilter("ignore", ConvergenceWarning)
            labels = model.fit_predict(points)
        return Clusters(labels=labels, centroids=model.cluster_centers_, loss=float(model.inertia_))


_WIDEST = 2
"""The number of knobs by which the code released with Ahn et al. (2020) clusters."""


class KMeansKneeSampler(Sampler):
    """Selects one configuration per cluster of candidates, the cluster with the best score first.

    The knee of the loss gives the number of clusters (Ahn et al., "Chameleon", 2020, section 3.2
    and Algorithm 1).
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
        unvisited = visited.unvisited(candidates.configs)
        configs, scores = candidates.configs[unvisited], candidates.scores[unvisited]
        if not len(configs) or count < 1:
            return configs[:0]
        points = configs[:, self._columns] / self._scale
        clusters = KneeSearch(self._counts(count), self._options.threshold, self._rng).run(points)
        order = np.argsort(-scores, kind="stable")
        # Clusters are sorted by the rank of their best candidates.
        _, first = np.unique(clusters.labels[order], return_index=True)
        ranking = clusters.labels[order][np.sort(first)]
        if self._options.representative == "floor":
            # As in the paper, they may be illegal or visited; the synthesizer replaces them.
            return self._rounded_means(configs, clusters.labels, ranking)[:count]
        if self._options.representative == "best":
            return configs[order[np.sort(first)]][:count]
        return configs[self._nearest(points, clusters, ranking)][:count]

    def _counts(self, count: int) -> list[int]:
        """The numbers of clusters to try, at most ``count``."""
        options = self._options
        largest = min(options.largest, count)
        return list(range(min(options.smallest, largest), largest + 1, options.step))

    @staticmethod
    def _rounded_means(
        configs: Configs, labels: NDArray[np.intp], ranking: NDArray[np.intp]
    ) -> Configs:
        """The mean configuration of each cluster, rounded down, shape (k, knobs)."""
        means = np.array([configs[labels == label].mean(axis=0) for label in ranking.tolist()])
        rounded: Configs = np.floor(means).astype(np.int32)
        return rounded

    @staticmethod
    def _nearest(points: Points, clusters: Clusters, ranking: NDArray[np.intp]) -> NDArray[np.intp]:
        """The row of the candidate nearest to the centroid of each cluster, shape (k,)."""
        distances = np.square(points - clusters.centroids[clusters.labels]).sum(axis=1)
        order = np.lexsort([distances, clusters.labels])
        present, first = np.unique(clusters.labels[order], return_index=True)
        nearest = np.empty(len(clusters), np.intp)
        nearest[present] = order[first]
        rows: NDArray[np.intp] = nearest[ranking]
        return rows
