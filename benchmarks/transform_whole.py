"""A point of a front as a whole network, against the original, both tuned and compiled."""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path
from typing import Any

import attrs
from chameleon_core._loop.end.result import RunResult
from chameleon_core._loop.run import run_pipeline
from chameleon_core._pipeline.load import from_dict
from chameleon_networks._artifact.writer import read_manifest
from chameleon_networks._throughput.comparison import network_request
from chameleon_transforms._session import Session
from served_processes import random_inputs, turn

_SECONDS = 0.5
"""Of each turn."""


@attrs.frozen(kw_only=True)
class Whole:
    """Two delivered networks, timed in turns.

    Attributes:
        original: median seconds of one inference over the turns.
        point: likewise, of the transformed network.
        ratios: of the two, turn by turn, ascending.
    """

    original: float
    point: float
    ratios: tuple[float, ...]


def whole(found: Session, result: dict[str, Any], place: int, turns: int = 9) -> Whole:
    """Deliver a point of a front, tune the original as it was tuned, and time both.

    Args:
        found: its pipeline's budget is of either.
        result: what the session's search has returned.
        place: of the point in the front.
        turns: processes of either.

    Raises:
        SystemExit: one of them was not delivered.
    """
    folder, _ = found.deliver(result, place)
    document = {key: one for key, one in found.pipeline.document.items() if key != "transform"}
    document["output"] = str(found.folder / "original")
    original = _delivered(run_pipeline(from_dict(document)))
    return in_turns(original, _delivered(found.compile(folder)), turns)


def _delivered(run: RunResult) -> Path:
    if run.network.folder is None:
        raise SystemExit(f"{run.folder} delivered no network")
    return Path(run.network.folder)


def in_turns(original: Path, point: Path, turns: int) -> Whole:
    """Time two delivered networks, each turn in processes of their own."""
    pairs = []
    with tempfile.TemporaryDirectory() as made:
        inputs = random_inputs(read_manifest(original), Path(made))
        common = {"inputs": inputs, "seconds": _SECONDS}
        requests = [{**network_request(one, 1, 0), **common} for one in (original, point)]
        for number in range(turns):
            order = (0, 1) if number % 2 else (1, 0)
            seconds = {one: turn(requests[one])["p50_seconds"] for one in order}
            pairs.append((seconds[0], seconds[1]))
    before, after = (statistics.median(side) for side in zip(*pairs, strict=True))
    ratios = tuple(sorted(one / other for one, other in pairs))
    return Whole(original=before, point=after, ratios=ratios)
