"""Fresh processes that run a network as a user's do, for ``served.py``."""

from __future__ import annotations

import contextlib
import json
import os
import re
import statistics
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from chameleon_networks._throughput import clients
from chameleon_networks._throughput.comparison import figures_of

KEPT = ("PATH", "HOME", "LANG")
"""The variables of every process that is measured."""

LIMIT = 600.0
"""A process may take so many seconds beside those that it measures."""

_LOADED = {
    "network": "sys.path.insert(0, sys.argv[1]); from load import load; run = load()",
    "openvino": (
        "import openvino; compiled = openvino.Core().compile_model(sys.argv[1], 'CPU', "
        "{'INFERENCE_PRECISION_HINT': 'f32'}); run = lambda *inputs: compiled(inputs)"
    ),
    "onnxruntime": (
        "import onnxruntime; session = onnxruntime.InferenceSession(sys.argv[1]); "
        "names = [one.name for one in session.get_inputs()]; "
        "run = lambda *inputs: session.run(None, dict(zip(names, inputs)))"
    ),
}
"""What a user writes to load a network, by what runs it."""

_FIRST_ANSWER = """
import sys
import numpy
{load}
with numpy.load(sys.argv[2]) as stored:
    outputs = run(*[stored[name] for name in stored.files])
print("answered", flush=True)
sys.stdin.read()
"""


class FailedError(Exception):
    """A process gave no figure; says why in a sentence."""


def environment() -> dict[str, str]:
    """The variables of a process that is measured, and nothing else."""
    return {name: os.environ[name] for name in KEPT if name in os.environ}


def turn(request: Mapping[str, Any], *, prefix: Sequence[str] = ()) -> dict[str, Any]:
    """What ``clients`` answers in a fresh process, with ``figures_of`` it.

    Args:
        request: see ``clients.answered``.
        prefix: words of a command that becomes the process.

    Raises:
        FailedError: it says why it has no figures, or died.
    """
    command = [*prefix, sys.executable, clients.__file__, json.dumps(request)]
    limit = LIMIT + request["seconds"]
    finished = subprocess.run(
        command, check=False, env=environment(), capture_output=True, text=True, timeout=limit
    )
    lines = finished.stdout.splitlines()
    if finished.returncode or not lines:
        told = finished.stderr.strip().splitlines()
        raise FailedError(
            f"the process ended with {finished.returncode}: {told[-1] if told else ''}"
        )
    answer: dict[str, Any] = json.loads(lines[-1])
    if "error" in answer:
        raise FailedError(answer["error"])
    return {**answer, **figures_of(answer)}


def c_turn(folder: Path, files: Sequence[str], runs: int) -> dict[str, float]:
    """Latencies of the example of a bundle for C, built in a folder, in a fresh process.

    Raises:
        FailedError: it died or printed none.
    """
    command = ["./example", "weights.bin", *files, "--runs", str(runs)]
    finished = subprocess.run(
        command,
        check=False,
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    told = re.search(
        r"latency (\S+) s .*?99 % of the runs took (\S+) s", finished.stdout, re.DOTALL
    )
    if told is None:
        raise FailedError(f"the example printed no latency: {finished.stderr.strip()[:200]}")
    return {"p50_seconds": float(told[1]), "p99_seconds": float(told[2])}


@contextlib.contextmanager
def answering(
    by: str, path: str, inputs: str, python: str = sys.executable
) -> Iterator[tuple[int, float]]:
    """A process that has answered once and waits: its number, and the seconds until the answer.

    Args:
        by: a key of what loads networks.
        path: of the network.
        inputs: a file of ``np.savez``.
        python: the interpreter.

    Raises:
        FailedError: it died.
    """
    code = _FIRST_ANSWER.format(load=_LOADED[by])
    begun = perf_counter()
    with subprocess.Popen(
        [python, "-c", code, path, inputs],
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            answered = any(line.strip() == "answered" for line in iter(process.stdout.readline, ""))
            took = perf_counter() - begun
            if not answered:
                told = process.stderr.read().strip().splitlines()
                raise FailedError(f"the process did not answer: {told[-1] if told else 'no words'}")
            yield process.pid, took
        finally:
            process.kill()


def memory(process: int) -> dict[str, int]:
    """The memory of a process in bytes: ``rss`` counts shared pages fully, ``pss`` in part."""
    lines = Path("/proc", str(process), "smaps_rollup").read_text().splitlines()
    kilobytes = {words[0]: int(words[1]) for words in map(str.split, lines[1:])}
    return {"rss": kilobytes["Rss:"] * 1024, "pss": kilobytes["Pss:"] * 1024}


@contextlib.contextmanager
def one_core() -> Iterator[list[str]]:
    """The prefix of a command that runs in a control group of one core's time.

    Raises:
        FailedError: this system or this user can make none.
    """
    top = Path("/sys/fs/cgroup")
    first = (top / "cpu" / "cpu.cfs_quota_us").exists() or (top / "cpu" / "tasks").exists()
    group = (top / "cpu" if first else top) / f"chameleon-{uuid.uuid4().hex[:12]}"
    try:
        group.mkdir()
    except OSError as error:
        raise FailedError(f"no control group can be made: {error.strerror}") from error
    try:
        try:
            if first:
                (group / "cpu.cfs_period_us").write_text("100000")
                (group / "cpu.cfs_quota_us").write_text("100000")
            else:
                (group / "cpu.max").write_text("100000 100000")
        except OSError as error:
            raise FailedError(f"a control group takes no limit: {error.strerror}") from error
        entered = 'echo $$ > "$0" && exec "$@"'
        yield ["sh", "-c", entered, str(group / "cgroup.procs")]
    finally:
        group.rmdir()


def random_inputs(manifest: Mapping[str, Any], folder: Path) -> str:
    """A file in a folder with random inputs of a delivered network, for ``turn``."""
    rng = np.random.default_rng(0)
    # Of whole types, which are indices, masks and the like, they are 0, 1, 2.
    arrays = [
        np.abs(rng.standard_normal(one["shape"])).astype(one["dtype"]) for one in manifest["inputs"]
    ]
    file = folder / "inputs.npz"
    np.savez(file, *arrays)
    return str(file)


def median_of(turns: Sequence[Mapping[str, Any]], key: str) -> float:
    """The median of one figure over turns."""
    return float(statistics.median(one[key] for one in turns))
