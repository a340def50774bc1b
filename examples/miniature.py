"""Chameleon in 200 lines: the loop of Ahn et al. (ICLR 2020), tuning one matrix product.

``python examples/miniature.py`` prints the best kernel after each round. The page
docs/miniature.md explains each part, and names the modules of the packages that do the same.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import tvm
import xgboost
from numpy.random import Generator, default_rng
from sklearn.cluster import KMeans
from tvm import te
from tvm.s_tir import Schedule

SIZE = 256
"""Rows and columns of the matrices."""
LARGEST_TILE = 1024
"""Sums that a kernel accumulates at the same time; they fit into the fastest cache."""
LONGEST_CODE = 64
"""Vector instructions of unrolled loops; longer code takes long to compile."""
KNOBS = {
    "rows": (1, 2, 4, 8, 16),
    "columns": (4, 8, 16, 32, 64, 128),
    "depth": (1, 2, 4, 8, 16, 32),
    "lanes": (1, 4, 8, 16),
    "unroll": (False, True),
    "rows_inside": (False, True),
}
CONSTRAINTS = (
    lambda t: t["columns"] % t["lanes"] == 0,
    lambda t: t["rows"] * t["columns"] <= LARGEST_TILE,
    lambda t: ~t["unroll"] | (t["rows"] * t["columns"] * t["depth"] <= LONGEST_CODE * t["lanes"]),
)


class Space:
    """Knobs and constraints. A configuration is a row with the index of one choice per knob."""

    sizes = np.array([len(choices) for choices in KNOBS.values()])

    def values(self, configs: np.ndarray) -> dict[str, np.ndarray]:
        """The choices of configurations, one array per knob."""
        columns = zip(KNOBS.items(), configs.T, strict=True)
        return {name: np.array(choices)[column] for (name, choices), column in columns}

    def legal(self, configs: np.ndarray) -> np.ndarray:
        """Whether each configuration meets all constraints."""
        values = self.values(configs)
        return np.logical_and.reduce([constraint(values) for constraint in CONSTRAINTS])

    def sample(self, count: int, rng: Generator) -> np.ndarray:
        """Random legal configurations, at most ``count``."""
        drawn = rng.integers(0, self.sizes, (4 * count, len(self.sizes)))
        return drawn[self.legal(drawn)][:count]

    def mutate(self, configs: np.ndarray, rng: Generator) -> np.ndarray:
        """Move one knob of each configuration by one choice; an illegal move is not made."""
        moved, rows = configs.copy(), np.arange(len(configs))
        moved[rows, rng.integers(0, len(self.sizes), len(rows))] += rng.choice([-1, 1], len(rows))
        moved = np.clip(moved, 0, self.sizes - 1)
        return np.where(self.legal(moved)[:, None], moved, configs)


def fresh(configs: np.ndarray, measured: np.ndarray) -> np.ndarray:
    """The distinct configurations that were not measured before, in their order."""
    known = set(map(tuple, measured.tolist()))
    rows = [row for row in dict.fromkeys(map(tuple, configs.tolist())) if row not in known]
    return np.array(rows, int).reshape(-1, configs.shape[1])


class CostModel:
    """Predicts speed relative to the fastest kernel from the indices of knobs."""

    trees: xgboost.XGBRegressor | None = None

    def learn(self, configs: np.ndarray, seconds: np.ndarray) -> None:
        """Train on all measurements; a failed kernel took infinite time, so its speed is 0."""
        if np.isfinite(seconds).any():
            self.trees = xgboost.XGBRegressor(n_estimators=50, max_depth=4, n_jobs=1)
            self.trees.fit(configs, seconds.min() / seconds)

    def score(self, configs: np.ndarray) -> np.ndarray:
        """The predicted speed of each configuration; before the first measurement, zeros."""
        return np.zeros(len(configs)) if self.trees is None else self.trees.predict(configs)


def explore(space: Space, model: CostModel, measured: np.ndarray, rng: Generator) -> np.ndarray:
    """Simulated annealing on the model's scores: up to 64 candidates, the best score first."""
    chains = space.sample(32, rng)
    scores, seen = model.score(chains), [chains]
    for temperature in np.linspace(0.5, 0.01, 40):
        moved = space.mutate(chains, rng)
        moved_scores = model.score(moved)
        chance = np.exp(np.minimum((moved_scores - scores) / temperature, 0.0))
        accepted = rng.random(len(chains)) < chance
        chains = np.where(accepted[:, None], moved, chains)
        scores = np.where(accepted, moved_scores, scores)
        seen.append(moved)
    candidates = fresh(np.concatenate(seen), measured)
    return candidates[np.argsort(-model.score(candidates), kind="stable")[:64]]


def adaptive_sample(candidates: np.ndarray, most: int, seed: int) -> np.ndarray:
    """Algorithm 1, lines 2 to 7: the centroids of k-means, for the k at the knee of its loss."""
    centroids, previous = candidates[:most], np.inf
    for clusters in range(4, min(most, len(candidates)) + 1, 4):
        found = KMeans(clusters, n_init=1, random_state=seed).fit(candidates)
        centroids = found.cluster_centers_
        if 2.5 * found.inertia_ >= previous:
            break
        previous = found.inertia_
    return np.floor(centroids).astype(int)


def synthesize(
    space: Space, batch: np.ndarray, candidates: np.ndarray, measured: np.ndarray
) -> np.ndarray:
    """Algorithm 1, lines 8 to 10: replace what cannot be measured by the candidates' mode.

    The mode has the most frequent choice of each knob. Less frequent combinations follow it.
    """
    usable = fresh(batch[space.legal(batch)], measured)
    counts = [np.bincount(column) for column in candidates.T]
    common = [np.argsort(-count, kind="stable")[:3][: (count > 0).sum()] for count in counts]
    combinations = np.array(list(itertools.product(*common)))
    columns = zip(counts, combinations.T, strict=True)
    frequency = np.prod([count[column] for count, column in columns], axis=0)
    modes = combinations[np.argsort(-frequency, kind="stable")]
    modes = fresh(modes[space.legal(modes)], np.concatenate([measured, usable]))
    return np.concatenate([usable, modes[: len(batch) - len(usable)]])


def program(
    *, rows: int, columns: int, depth: int, lanes: int, unroll: bool, rows_inside: bool
) -> tvm.tirx.PrimFunc:
    """The matrix product with tiles of rows x columns sums, which it accumulates locally."""
    a, b = (te.placeholder((SIZE, SIZE), "float32", name=name) for name in "ab")
    axis = te.reduce_axis((0, SIZE), name="k")
    product = te.compute(
        (SIZE, SIZE), lambda m, n: te.sum(a[m, axis] * b[axis, n], axis=axis), name="product"
    )
    schedule = Schedule(te.create_prim_func([a, b, product]))
    block = schedule.get_sblock("product")
    output = schedule.cache_write(block, 0, "local")
    m, n, k = schedule.get_loops(block)
    m, row = schedule.split(m, [None, rows])
    n, column, lane = schedule.split(n, [None, columns // lanes, lanes])
    k, step = schedule.split(k, [None, depth])
    inner = [step, row] if rows_inside else [row, step]
    schedule.reorder(m, n, k, *inner, column, lane)
    schedule.reverse_compute_at(output, n)
    schedule.vectorize(schedule.get_loops(output)[-1])
    schedule.vectorize(lane)
    for loop in [*inner, column] if unroll else []:
        schedule.unroll(loop)
    schedule.decompose_reduction(block, k)
    return schedule.mod["main"].with_attr("global_symbol", "main")


def measure(config: np.ndarray) -> float:
    """Build, check and time a kernel; returns seconds, infinite if the kernel fails."""
    values = {name: choices[i] for (name, choices), i in zip(KNOBS.items(), config, strict=True)}
    left, right = default_rng(0).random((2, SIZE, SIZE), np.float32)
    arrays = [tvm.runtime.tensor(array) for array in (left, right, np.zeros_like(left))]
    try:
        kernel = tvm.compile(program(**values), target="llvm").jit()
        kernel["main"](*arrays)
        np.testing.assert_allclose(arrays[2].numpy(), left @ right, rtol=1e-4)
    except (RuntimeError, ValueError, AssertionError):  # of TVM, or of the check
        return np.inf
    timer = kernel.time_evaluator("main", tvm.cpu(), number=3, repeat=3)
    return min(timer(*arrays).results)


def tune(rounds: int, most: int, seed: int = 0) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Tune the matrix product; after each round, yield all configurations and their seconds."""
    rng, space, model = default_rng(seed), Space(), CostModel()
    configs, seconds = np.empty((0, len(KNOBS)), int), np.empty(0)
    for _ in range(rounds):
        candidates = explore(space, model, configs, rng)
        if not len(candidates):
            return
        samples = adaptive_sample(candidates, most, seed)
        batch = synthesize(space, samples, candidates, configs)
        configs = np.concatenate([configs, batch])
        seconds = np.concatenate([seconds, [measure(config) for config in batch]])
        model.learn(configs, seconds)
        yield configs, seconds


if __name__ == "__main__":
    for configs, seconds in tune(rounds=8, most=32):
        values = Space().values(configs[[seconds.argmin()]])
        fastest = ", ".join(f"{name}={value.item()}" for name, value in values.items())
        print(f"{len(seconds)} kernels, {seconds.min() * 1e6:.0f} us: {fastest}")  # noqa: T201
