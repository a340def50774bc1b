"""A small network is trained, transformed, and trained again by the script of its folder."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import attrs
import torch
from chameleon_core.api import Registry
from chameleon_transforms._delivery import retrain
from chameleon_transforms._delivery.network_folder import write_candidate, write_network
from chameleon_transforms._delivery.weights import WeightTransfer
from chameleon_transforms._network.replacement import with_modules
from chameleon_transforms._network.space import Candidate, NetworkSpace
from chameleon_transforms._scores.scorer import Scorer
from chameleon_transforms._section import Transformation
from transform_digits import DIGIT, digits, drawn, space_of, training, untrained

TRAINED_WITH = 1200
"""Digits; the other 597 are held out."""
TIMES = (3.0, 3.6)
"""How many times fewer multiply-adds the chosen network has."""
_JUDGED = 100


@attrs.frozen
class Outcome:
    """Accuracies on held-out digits.

    Attributes:
        original: of the network that was transformed.
        carried: of the transformed one, with the weights that were carried over.
        again: of the same, after the script.
        fewer: how many times fewer multiply-adds it has.
        score: its deciding score, relative to the original's.
    """

    original: float
    carried: float
    again: float
    fewer: float
    score: float


def retrained(network: str, epochs: int, folder: Path, seeds: int) -> Iterator[Outcome]:
    """Train, transform and train again; each seed has its own split, weights and network.

    Args:
        network: of `transform_networks.py`.
        epochs: of the original's training; the script has its own.
        folder: where the folders of the chosen networks go.
        seeds: how many.
    """
    for seed in range(seeds):
        train, held_out = digits(seed, TRAINED_WITH)
        original = untrained(network, seed)
        retrain.train(original, None, *train, training(epochs, seed, 0.05), lambda _: None)
        space = space_of(original.eval())
        judge = Scorer(space, train[0][:64], train[1][:64], seed)
        candidate, score = best(space, judge, seed)
        modules, _ = WeightTransfer(space, candidate).modules()
        carried = with_modules(space.network.module, modules)
        here = folder / network / str(seed)
        (here / "data").mkdir(parents=True, exist_ok=True)
        write_candidate(space, candidate, torch.zeros(DIGIT), here)
        write_network(space.network.module, torch.zeros(DIGIT), here, "original")
        torch.save(train, here / "data" / "train.pt")
        torch.save(held_out, here / "data" / "test.pt")
        yield Outcome(
            original=retrain.accuracy(original, *held_out, 256),
            carried=retrain.accuracy(carried, *held_out, 256),
            again=script(here, seed),
            fewer=space.candidate(space.original).multiply_adds / candidate.multiply_adds,
            score=score,
        )


def best(space: NetworkSpace, judge: Scorer, seed: int) -> tuple[Candidate, float]:
    """The network of the largest default score with about 3 times fewer multiply-adds."""
    (name, *_) = Transformation().scores
    score = Registry.default().create("network_scores", name)
    before = space.candidate(space.original)
    low, high = TIMES
    fitting = (
        one
        for _, one in drawn(space, seed)
        if low <= before.multiply_adds / one.multiply_adds < high
    )
    found = [(judge.score(one, score), one) for one in itertools.islice(fitting, _JUDGED)]
    value, chosen = max(found, key=lambda pair: pair[0])
    return chosen, value / judge.score(before, score)


def script(folder: Path, seed: int) -> float:
    """What the script of a folder says of the transformed network, with its own defaults."""
    shutil.copyfile(retrain.__file__, folder / "retrain.py")
    done = subprocess.run(
        [sys.executable, str(folder / "retrain.py"), "--seed", str(seed)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())},
    )
    found = re.search(r"accuracy of the transformed: ([\d.]+)", done.stdout)
    if found is None:
        raise RuntimeError(done.stdout)
    return float(found[1])
