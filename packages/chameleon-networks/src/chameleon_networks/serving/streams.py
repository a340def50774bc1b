"""How many requests a second networks answer, and how long a request takes meanwhile."""

from __future__ import annotations

import json
import statistics
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import structlog
from chameleon_core.errors import ChameleonError
from chameleon_system.cores import usable_cores
from chameleon_system.processes.child import ChildProcess
from chameleon_system.processes.conversation import Conversation
from chameleon_tvm.types import BFLOAT16, FLOAT16, FLOAT32, INT8
from chameleon_tvm.words import one_line

from chameleon_networks.delivery.side_by_side import result_of
from chameleon_networks.frameworks.openvino_precisions import NAMES
from chameleon_networks.frameworks.running import OPENVINO
from chameleon_networks.importers.imported_network import ImportedNetwork
from chameleon_networks.running.processes import awaited
from chameleon_networks.running.requests import write_arrays
from chameleon_networks.serving.model_files import ModelFile, model_files

log = structlog.get_logger()

Figures = Mapping[str, Any]
"""What is known of a turn, of several, or is asked of one, as JSON values."""

_OPENING = 600.0
"""A process may take so long before its clients begin."""

QUANTILES = (50, 90, 99)


@attrs.frozen(kw_only=True)
class Served:
    """A comparison of networks that several clients call at the same time.

    Attributes:
        network: as its framework has it.
        ours: what the delivered network is called.
        folder: of the delivered network.
        bucket: of shapes, in which it is called; empty if there is one shape.
        names: those of ``model_files.FRAMEWORKS`` that run it in float32 beside it.
        precisions: in which they run it as well.
        calibrate: where inputs to calibrate with are from; None for random ones.
        streams: numbers of clients.
        neighbours: busy processes beside everybody.
        threads: that compute.
        rounds: turns of each.
        seconds: of a turn.
    """

    network: ImportedNetwork
    ours: str
    folder: Path
    bucket: str = ""
    names: Sequence[str]
    precisions: Sequence[str] = ()
    calibrate: str | None = None
    streams: Sequence[int]
    neighbours: int = 0
    threads: int
    rounds: int
    seconds: float


@attrs.frozen(kw_only=True)
class _Way:
    """One way to run one of the contenders, with what its turns gave so far."""

    name: str
    words: str
    asked: str
    request: Figures
    turns: list[Figures] = attrs.field(factory=list)


def served(asked: Served) -> tuple[dict[int, dict[str, Figures]], dict[str, str]]:
    """Have networks called by clients, in turns, each turn in a fresh process.

    Args:
        asked: which.

    Returns:
        For each number of clients the figures of each contender: ``requests_per_second``,
        ``p50_seconds`` and so on are medians over the turns. A contender that can be run in
        several ways has the figures of the best one, ``way``. Then why others have none, by name.

    Raises:
        ChameleonError: the delivered network fails.
    """
    with tempfile.TemporaryDirectory(prefix="chameleon-served-") as name:
        folder = Path(name)
        files, left_out = model_files(
            asked.network, asked.names, asked.precisions, asked.calibrate, folder
        )
        write_arrays(folder / "inputs.npz", asked.network.samples(np.random.default_rng(0)))
        figures = {}
        for streams in asked.streams:
            ways = _ways(asked, files, streams, folder / "inputs.npz")
            problems = _take_turns(ways, asked)
            figures[streams] = _best(ways)
            missing = {way.name for way in ways} - set(figures[streams])
            left_out |= {name: problems[name] for name in missing}
    return figures, left_out


def openvino_ways(path: str, streams: int, threads: int, hint: str | None) -> dict[str, Figures]:
    """How OpenVINO's users have several requests answered: by either of its performance hints."""
    request = {"by": "openvino", "path": path, "streams": streams, "threads": threads, "hint": hint}
    modes = ("THROUGHPUT", "LATENCY")
    return {f"{mode.lower()} hint": {**request, "mode": mode} for mode in modes}


def onnxruntime_ways(path: str, streams: int, threads: int) -> dict[str, Figures]:
    """How those of onnxruntime do: in one session, or in one each with a part of the threads."""
    request = {"by": "onnxruntime", "path": path, "streams": streams}
    ways: dict[str, Figures] = {"one session": {**request, "sessions": 1, "threads": threads}}
    if streams > 1:
        part = max(1, (threads or len(usable_cores())) // streams)
        ways[f"{streams} sessions"] = {**request, "sessions": streams, "threads": part}
    return ways


def network_request(folder: Path, streams: int, threads: int) -> Figures:
    """How a delivered network answers several requests: each has an instance."""
    request = {"by": "network", "path": str(folder), "streams": streams, "threads": threads}
    return {**request, "instances": streams}


def figures_of(turn: Figures) -> dict[str, float]:
    """Requests a second, and quantiles of the latency, of one answer of ``clients``."""
    latencies = turn["latencies"]
    quantiles = np.percentile(latencies, QUANTILES)
    return {
        "requests_per_second": len(latencies) / turn["seconds"],
        **{f"p{p}_seconds": float(q) for p, q in zip(QUANTILES, quantiles, strict=True)},
    }


def _ways(asked: Served, files: Mapping[str, ModelFile], streams: int, inputs: Path) -> list[_Way]:
    # What takes all cores by itself is asked nothing.
    threads = 0 if asked.threads == len(usable_cores()) else asked.threads
    common = {"inputs": str(inputs), "seconds": asked.seconds, "neighbours": asked.neighbours}
    own = result_of(asked.folder / asked.bucket, asked.network).precision
    request = network_request(asked.folder.absolute(), streams, threads)
    ways = [_Way(name=asked.ours, words="", asked=own, request={**request, **common})]
    for name, file in files.items():
        if file.framework == OPENVINO:
            requests = openvino_ways(file.path, streams, threads, file.hint)
        else:
            requests = onnxruntime_ways(file.path, streams, threads)
        ways += [
            _Way(name=name, words=words, asked=file.precision, request={**request, **common})
            for words, request in requests.items()
        ]
    return ways


def _take_turns(ways: list[_Way], asked: Served) -> dict[str, str]:
    """All turns, interleaved; says why ways that fail do, by the contender's name."""
    problems: dict[str, str] = {}
    for _ in range(asked.rounds):
        for way in list(ways):
            if problems.get(way.name) and not way.turns:
                continue
            try:
                turn = client_turn(way.name, way.request)
                _check(way, turn)
            except ChameleonError as error:
                if way.name == asked.ours:
                    raise
                log.warning("network_not_run", by=way.name, way=way.words, problem=str(error))
                problems[way.name] = one_line(error)
                way.turns.clear()
                continue
            way.turns.append({**figures_of(turn), "precision": turn["precision"]})
    return problems


def client_turn(name: str, request: Figures) -> Figures:
    """The answer of ``clients`` to a request, in a fresh process.

    Args:
        name: what is called in messages.
        request: see ``clients.answered``.

    Raises:
        ChameleonError: it failed, died or hung.
    """
    words, pipe = [json.dumps(request)], subprocess.PIPE
    with ChildProcess("chameleon_networks.serving.clients", words, stdout=pipe) as child:
        return awaited(name, child, Conversation(child), _OPENING + request["seconds"])


def _check(way: _Way, turn: Figures) -> None:
    """See that a network computes in what it was asked for.

    Raises:
        ChameleonError: it does not.
    """
    precision = NAMES.get(turn["precision"])
    if way.asked in (BFLOAT16, FLOAT16) and precision != way.asked:
        raise ChameleonError(f"asked for {way.asked} it computes in {precision} on this CPU")


def _best(ways: Sequence[_Way]) -> dict[str, Figures]:
    """The figures of each contender in its best way."""
    best: dict[str, Figures] = {}
    for way in ways:
        if not way.turns:
            continue
        keys = [key for key in way.turns[0] if key != "precision"]
        figures: Figures = {key: statistics.median(turn[key] for turn in way.turns) for key in keys}
        so_far = best.get(way.name)
        if so_far and so_far["requests_per_second"] >= figures["requests_per_second"]:
            continue
        kind = NAMES.get(way.turns[0]["precision"])
        precision = way.asked if kind is None else kind
        if way.asked == INT8:
            precision = INT8 if kind in (None, FLOAT32) else f"{INT8}, the rest {kind}"
        best[way.name] = {
            **figures,
            "turns": len(way.turns),
            "way": way.words,
            "precision": precision,
            "asked": way.asked,
        }
    return best
