"""How well scores of untrained networks foretell how accurate the trained networks are.

Networks are drawn in bands of similar cost, since a choice among transformed networks is one among
networks of similar cost: what ranks cheap networks below costly ones ranks nothing that a number of
multiply-adds does not. Each is trained from scratch, once for each seed, with weights, order and
held-out digits of that seed. What was trained is kept in a file, and not trained again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from chameleon_core.api import Registry
from chameleon_transforms._delivery import retrain
from chameleon_transforms._network.replacement import replacements, with_modules
from chameleon_transforms._network.space import Candidate, NetworkSpace
from chameleon_transforms._scores.scorer import Scorer
from chameleon_transforms._search.search import Bound
from numpy.typing import NDArray
from scipy.stats import rankdata
from transform_digits import digits, drawn, space_of, training, untrained

Row = dict[str, Any]
Values = NDArray[np.float64]

BANDS = ((1.25, 1.75), (1.75, 2.5), (2.5, 3.5), (3.5, 5.0))
"""How many times fewer multiply-adds than the original the networks of a band have."""
TRAINED_WITH = 192
"""Digits: with 600 of them all networks are about as accurate, and differ by accident."""
MINIBATCH = 64
_SHUFFLES = 2000


def chosen(space: NetworkSpace, networks: int) -> Iterator[tuple[int, tuple[int, ...], Candidate]]:
    """As many networks of each band, in turns: band, row of indices, network."""
    before = space.candidate(space.original).multiply_adds
    found: list[list[tuple[tuple[int, ...], Candidate]]] = [[] for _ in BANDS]
    each = -(-networks // len(BANDS))
    for config, candidate in drawn(space, seed=1):
        fewer = before / candidate.multiply_adds
        for band, (low, high) in enumerate(BANDS):
            if low <= fewer < high and len(found[band]) < each:
                found[band].append((config, candidate))
        if all(len(one) == each for one in found):
            break
    for place in range(each):
        for band, some in enumerate(found):
            yield (band, *some[place])


def accuracy_of(space: NetworkSpace, candidate: Candidate, epochs: int, seed: int) -> float:
    """Accuracy on the held-out digits after training from scratch."""
    train, held_out = digits(seed, TRAINED_WITH)
    torch.manual_seed(seed)
    changed = with_modules(space.network.module, replacements(space, candidate))
    for part in changed.modules():
        if hasattr(part, "reset_parameters"):
            part.reset_parameters()
    retrain.train(changed, None, *train, training(epochs, seed, 0.05), lambda _: None)
    return retrain.accuracy(changed, *held_out, 256)


def trained(
    network: str, names: Sequence[str], file: Path, *, networks: int, epochs: int, seeds: int
) -> list[Row]:
    """Train and judge networks; the original comes first.

    Args:
        network: of `transform_networks.py`.
        names: of the scores.
        file: lines of JSON; those that are there already are not trained again.
        networks: how many.
        epochs: of each training.
        seeds: trainings of each network.
    """
    space = space_of(untrained(network))
    (images, labels), _ = digits(0, TRAINED_WITH)
    judge = Scorer(space, images[:MINIBATCH], labels[:MINIBATCH])
    scores = {name: Registry.default().create("network_scores", name) for name in names}
    file.parent.mkdir(parents=True, exist_ok=True)
    lines = file.read_text().splitlines() if file.exists() else []
    known = {json.dumps(one["key"]): one["accuracy"] for one in map(json.loads, lines)}
    original = (-1, space.original, space.candidate(space.original))
    rows: list[Row] = []
    with file.open("a") as log:
        for band, config, candidate in (original, *chosen(space, networks)):
            key = [space.design.fingerprint, TRAINED_WITH, epochs, config]
            accuracies = list(known.get(json.dumps(key), ()))
            for seed in range(len(accuracies), seeds):
                accuracies.append(accuracy_of(space, candidate, epochs, seed))
                log.write(json.dumps({"key": key, "accuracy": accuracies}) + "\n")
                log.flush()
            row: Row = {name: judge.score(candidate, one) for name, one in scores.items()}
            accuracy = float(np.mean(accuracies[:seeds]))
            sizes = {name: one.proportional for name, one in scores.items()}
            rows.append({**row, "proportional": sizes, "band": band, "accuracy": accuracy})
    return rows


def within(bands: Values, values: Values) -> Values:
    """Ranks among networks of the same band, their mean taken off."""
    found = np.zeros(len(values))
    for band in np.unique(bands):
        here = bands == band
        ranks = rankdata(values[here])
        found[here] = ranks - ranks.mean()
    return found


def correlation(one: Values, other: Values) -> float:
    """Of values whose mean is 0; 0 where one of them is constant."""
    size = float(np.linalg.norm(one) * np.linalg.norm(other))
    return float(one @ other) / size if size else 0.0


def within_bands(bands: Values, values: Values, accuracy: Values) -> tuple[float, float]:
    """Spearman's correlation within bands, and how often shuffled bands have one as large."""
    scores, truth = within(bands, values), within(bands, accuracy)
    found = correlation(scores, truth)
    rng = np.random.default_rng(0)
    places = [np.flatnonzero(bands == band) for band in np.unique(bands)]
    larger = 0
    for _ in range(_SHUFFLES):
        shuffled = truth.copy()
        for here in places:
            shuffled[here] = truth[rng.permutation(here)]
        larger += abs(correlation(scores, shuffled)) >= abs(found) - 1e-12
    return found, (larger + 1) / (_SHUFFLES + 1)


def report(network: str, names: Sequence[str], rows: Sequence[Row]) -> None:
    """Print what the scores are worth, as a table."""
    original, *others = rows
    columns = {name: np.array([row[name] for row in others]) for name in names}
    accuracy = np.array([row["accuracy"] for row in others])
    bands = np.array([row["band"] for row in others], float)
    cost = columns["multiply-adds"]
    print(
        f"\n{network}: {len(others)} networks, accuracy {accuracy.min():.4f} to "
        f"{accuracy.max():.4f}, the original {original['accuracy']:.4f}"
    )
    print("| score | within bands (p) | accepted | rejected |")
    print("|---|---|---|---|")
    for name, values in columns.items():
        bound = Bound(
            score=original[name],
            multiply_adds=original["multiply-adds"],
            proportional=original["proportional"][name],
        )
        accepted = values >= [bound.at(one) for one in cost]
        means = [
            f"{accuracy[here].mean():.4f} ({here.sum()})" if here.any() else "none"
            for here in (accepted, ~accepted)
        ]
        inside, chance = within_bands(bands, values, accuracy)
        print(f"| {name} | {inside:.2f} ({chance:.2g}) | {means[0]} | {means[1]} |", flush=True)
