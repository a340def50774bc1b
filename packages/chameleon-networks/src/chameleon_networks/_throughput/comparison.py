"""Measures how many requests per second networks answer, and the latency of each request."""

from __future__ import annotations

import json
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import structlog
from chameleon_core.plugin_api import FLOAT32, ChameleonError
from chameleon_system.api import ChildProcess, Conversation, temporary_folder, usable_cores
from chameleon_tvm.api import BFLOAT16, FLOAT16, INT8, one_line

from chameleon_networks._comparison.comparison import Compared, delivered_precision
from chameleon_networks._evaluation.processes import wait_for_reply
from chameleon_networks._frameworks.inference import OPENVINO
from chameleon_networks._frameworks.reduced_precision import NAMES
from chameleon_networks._throughput.model_files import ModelFile, write_model_files

log = structlog.get_logger()

Figures = Mapping[str, Any]
"""A request for one turn, or the results of one or several turns, as JSON values."""

_OPENING = 600.0
"""Limit for opening a network before the clients begin."""

QUANTILES = (50, 90, 99)


@attrs.frozen(kw_only=True)
class ThroughputRequest(Compared):
    """The options of a comparison of networks that several clients call at the same time.

    ``ours`` has one delivered network. The frameworks are those of ``model_files.FRAMEWORKS``.

    Attributes:
        streams: The numbers of clients to measure, one comparison for each number.
        neighbours: Number of busy processes that run beside each network.
        seconds: Duration of one turn in seconds.
    """

    streams: Sequence[int]
    neighbours: int = 0
    seconds: float


@attrs.frozen(kw_only=True)
class _Way:
    """One way to run one of the compared networks, with the figures of its turns so far."""

    name: str
    words: str
    asked: str
    request: Figures
    turns: list[Figures] = attrs.field(factory=list)


def measure_throughput(
    asked: ThroughputRequest,
) -> tuple[dict[int, dict[str, Figures]], dict[str, str]]:
    """The figures by number of clients and network, and the reasons why others lack."""
    with temporary_folder() as name:
        folder = Path(name)
        files, left_out = write_model_files(
            asked.network, asked.names, asked.precisions, asked.calibrate, folder
        )
        np.savez(folder / "inputs.npz", *asked.network.samples(np.random.default_rng(0)))
        figures = {}
        for streams in asked.streams:
            ways = _ways(asked, files, streams, folder / "inputs.npz")
            problems = _take_turns(ways, asked)
            figures[streams] = _best(ways)
            missing = {way.name for way in ways} - set(figures[streams])
            left_out |= {name: problems[name] for name in missing}
    return figures, left_out


def openvino_configurations(
    path: str, streams: int, threads: int, hint: str | None
) -> dict[str, Figures]:
    """The requests to OpenVINO, one for each of its performance hints, by name."""
    request = {"by": "openvino", "path": path, "streams": streams, "threads": threads, "hint": hint}
    modes = ("THROUGHPUT", "LATENCY")
    return {f"{mode.lower()} hint": {**request, "mode": mode} for mode in modes}


def onnxruntime_configurations(path: str, streams: int, threads: int) -> dict[str, Figures]:
    """The requests to ONNX Runtime, with one session and with one for each client."""
    request = {"by": "onnxruntime", "path": path, "streams": streams}
    ways: dict[str, Figures] = {"one session": {**request, "sessions": 1, "threads": threads}}
    if streams > 1:
        part = max(1, (threads or len(usable_cores())) // streams)
        ways[f"{streams} sessions"] = {**request, "sessions": streams, "threads": part}
    return ways


def network_request(folder: Path, streams: int, threads: int) -> Figures:
    """The request that lets clients call a delivered network, each with its own instance."""
    request = {"by": "network", "path": str(folder), "streams": streams, "threads": threads}
    return {**request, "instances": streams}


def figures_of(turn: Figures) -> dict[str, float]:
    """Requests per second and quantiles of the latency, from one measurement of a network."""
    latencies = turn["latencies"]
    quantiles = np.percentile(latencies, QUANTILES)
    return {
        "requests_per_second": len(latencies) / turn["seconds"],
        **{f"p{p}_seconds": float(q) for p, q in zip(QUANTILES, quantiles, strict=True)},
    }


def _ways(
    asked: ThroughputRequest, files: Mapping[str, ModelFile], streams: int, inputs: Path
) -> list[_Way]:
    # By default every framework uses all cores, so it gets no number of threads.
    threads = 0 if asked.threads == len(usable_cores()) else asked.threads
    common = {"inputs": str(inputs), "seconds": asked.seconds, "neighbours": asked.neighbours}
    [(ours, folder)] = asked.ours.items()
    own = delivered_precision(folder / asked.bucket, asked.network).precision
    request = network_request(folder.absolute(), streams, threads)
    ways = [_Way(name=ours, words="", asked=own, request={**request, **common})]
    for name, file in files.items():
        if file.framework == OPENVINO:
            requests = openvino_configurations(file.path, streams, threads, file.hint)
        else:
            requests = onnxruntime_configurations(file.path, streams, threads)
        ways += [
            _Way(name=name, words=words, asked=file.precision, request={**request, **common})
            for words, request in requests.items()
        ]
    return ways


def _take_turns(ways: list[_Way], asked: ThroughputRequest) -> dict[str, str]:
    """Run all turns, interleaved, and return the problems by the name of the network."""
    problems: dict[str, str] = {}
    left = list(ways)
    for _ in range(asked.rounds):
        for way in list(left):
            try:
                turn = run_turn(way.name, way.request)
                _check(way, turn)
            except ChameleonError as error:
                if way.name in asked.ours:
                    raise
                log.warning("network_not_run", by=way.name, way=way.words, problem=str(error))
                problems[way.name] = one_line(error)
                way.turns.clear()
                left.remove(way)
            else:
                way.turns.append({**figures_of(turn), "precision": turn["precision"]})
    return problems


def run_turn(name: str, request: Figures) -> Figures:
    """Run one turn of a comparison in a new process, and return what ``clients`` measured."""
    words, pipe = [json.dumps(request)], subprocess.PIPE
    with ChildProcess("chameleon_networks._throughput.clients", words, stdout=pipe) as child:
        return wait_for_reply(name, child, Conversation(child), _OPENING + request["seconds"])


def _check(way: _Way, turn: Figures) -> None:
    """Check that a network computes in the half precision that it was asked for."""
    precision = NAMES.get(turn["precision"])
    if way.asked in (BFLOAT16, FLOAT16) and precision != way.asked:
        raise ChameleonError(f"asked for {way.asked} it computes in {precision} on this CPU")


def _best(ways: Sequence[_Way]) -> dict[str, Figures]:
    """The figures of each network in the way with the most requests per second."""
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
