"""Reduced precision of one network with first guesses: `corpus.py --check --precision`'s part.

The network's operators are looked at in float32 and in each type, ranges and errors are found, and
types are chosen, verified and timed as at the end of a run. Kernels are first guesses, each of
which is taken to be faster in a type than in float32 until the network is profiled. What is
delivered is compared with the framework on inputs that nothing was calibrated or verified with.
"""

from __future__ import annotations

import contextlib
import math
import resource
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from chameleon_core._loop.end.delivery import guessed, guesses_of
from chameleon_core._task import Task
from chameleon_core.plugin_api import Delivery, SpaceProvider
from chameleon_networks._artifact.writer import read_manifest
from chameleon_networks._comparison.baselines import Baselines
from chameleon_networks._evaluation.processes import delivered_process
from chameleon_networks._evaluation.verify import compare, magnitudes
from chameleon_networks._importers.imported_network import ImportedNetwork

FRESH = 8
"""Inputs that the delivered network is compared on."""

_SEED = 90_000
"""Apart from the seeds of random batches to calibrate with and to check with."""


def in_types(tasks: Sequence[Task], space: SpaceProvider) -> list[Delivery.Winner]:
    """First guesses that count as measured, faster in a type than in float32.

    Types are chosen among operators that were measured. A record of another run is one that is
    trusted as little as a guess; its seconds are made up here, until the network is profiled.
    """
    found = []
    for task in tasks:
        winner = guessed(task, guesses_of(space.design_space(task)))
        if winner is not None:
            seconds = 0.5 if task.alternative_of else 1.0
            found.append(attrs.evolve(winner, seconds=seconds, recorded=True))
    return found


def told(network: ImportedNetwork, delivery: Delivery) -> dict[str, Any]:
    """What there is to say of a network that was delivered in types.

    Args:
        network: as its framework has it.
        delivery: what it was delivered with.

    Returns:
        ``types``, operators by type; ``front``; ``fresh_error``, the largest difference over the
        largest output on inputs that nothing was calibrated or verified with, or None where one
        has no such number; ``megabytes`` of the largest process.
    """
    precision = read_manifest(delivery.folder)["precision"]
    rows = precision.get("front", [])
    delivered = [row for row in rows if row["delivered"]]
    return {
        "precision": precision["precision"],
        "summary": precision["precision_summary"],
        "front": rows,
        "types": delivered[0]["types"] if delivered else {},
        "fresh_error": fresh_error(network, delivery),
        "megabytes": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024,
    }


def fresh_error(network: ImportedNetwork, delivery: Delivery) -> float | None:
    """The largest error of a delivered network on fresh inputs; None where it is no number."""
    with contextlib.ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        reference = Baselines(network, delivery, scratch, stack).reference
        ours = stack.enter_context(
            delivered_process("network", delivery.folder, threads=delivery.threads)
        )
        seeds = range(_SEED, _SEED + FRESH)
        samples = [network.samples(np.random.default_rng(seed)) for seed in seeds]
        expected = [reference.outputs(inputs) for inputs in samples]
        found = compare(
            ours.outputs, samples, expected, tolerance=math.inf, scales=magnitudes(expected)
        )
    return found.max_relative_error
