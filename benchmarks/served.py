"""How delivered networks serve: in fresh processes, beside others, with little memory.

    python benchmarks/served.py runs/resnet18
    python benchmarks/served.py runs/resnet18 --only a,e --json figures.json

Every process that is measured is a fresh one with the variables PATH, HOME and LANG alone. Turns
are interleaved, and figures are medians over them. The sections are

    a  latency in a fresh process, against the one that the manifest and best.json say
    b  latency quiet and beside one and two busy processes, from Python and from C, and OpenVINO's
    c  latency with an operation of torch before each call in the same process
    d  latency in a control group of one core's time, against that of one thread
    e  requests a second of two clients, against others
    f  seconds from the start of a process to its first answer, its memory, sizes on disk
    g  memory of 16 processes, against that of one
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from chameleon_cli._env import describe
from chameleon_core._errors import ChameleonError
from chameleon_core._run_files import RunFile
from chameleon_core._run_view import RunView
from chameleon_core._words import counted
from chameleon_networks._artifact.writer import read_manifest
from chameleon_networks._commands.runs import network_of
from chameleon_networks._comparison.comparison import delivered_precision
from chameleon_networks._export.bundles import write_c_bundle
from chameleon_networks._frontends.bucketed import BucketedFrontend
from chameleon_networks._throughput.clients import busy_processes
from chameleon_networks._throughput.comparison import (
    network_request,
    onnxruntime_configurations,
    openvino_configurations,
)
from chameleon_networks._throughput.model_files import ModelFile, write_model_files
from served_processes import FailedError, answering, c_turn, median_of, memory, one_core, turn

OURS, C = "network", "network from C"
MIB = 2**20
CROWD = 16
"""Processes of one network in section g."""


@attrs.frozen(kw_only=True)
class Subject:
    """A delivered network, and what else there is of it.

    Attributes:
        run: its run folder.
        folder: a copy of the delivered one, of symbolic links.
        scratch: for other files.
        files: of the network for others, by their names.
        rounds: turns of each contender.
        seconds: of a turn.
        python: the interpreter of cold starts.
    """

    run: Path
    folder: Path
    scratch: Path
    files: Mapping[str, ModelFile]
    rounds: int
    seconds: float
    python: str

    def requests(self, streams: int = 1, threads: int = 0) -> dict[str, dict[str, Any]]:
        """What is asked of each contender; rivals are run as their users run them."""
        found = {OURS: network_request(self.folder, streams, threads)}
        for name, file in self.files.items():
            if file.framework == "openvino":
                ways = openvino_configurations(file.path, streams, threads, file.hint)
                found[name] = ways["throughput hint" if streams > 1 else "latency hint"]
            else:
                ways = onnxruntime_configurations(file.path, streams, threads)
                found |= {f"{name}, {words}": way for words, way in ways.items()}
        common = {"inputs": str(self.scratch / "inputs.npz"), "seconds": self.seconds}
        return {name: {**request, **common} for name, request in found.items()}


@attrs.frozen
class Figure:
    """One line of the result.

    Attributes:
        name: what was measured.
        value: its number; None for a sentence alone.
        unit: ``ms``, ``MiB``, ``/s``, ``times`` and so on.
        bar: the most or the least it may be, and None where nothing is asked of it.
        least: whether the bar is the least.
    """

    name: str
    value: float | None
    unit: str = ""
    bar: float | None = None
    least: bool = False

    @property
    def met(self) -> bool | None:
        """Whether the bar is met."""
        if self.bar is None or self.value is None:
            return None
        return self.value >= self.bar if self.least else self.value <= self.bar


def fresh(subject: Subject) -> list[Figure]:
    """Section a."""
    request = subject.requests()[OURS]
    measured = median_of([turn(request) for _ in range(subject.rounds)], "p50_seconds")
    said = {"manifest.json": read_manifest(subject.folder).get("latency", {})}
    best = subject.run / "best.json"
    if best.exists():
        said["best.json"] = json.loads(best.read_text(encoding="utf-8")).get("network") or {}
    figures = [Figure("latency", 1e3 * measured, "ms")]
    for file, network in said.items():
        seconds = network.get("latency_seconds")
        if seconds is not None:
            ratio = measured / seconds
            figures.append(Figure(f"over that of {file}", ratio, "times"))
            apart = max(ratio, 1 / ratio)
            figures.append(Figure(f"the larger over the smaller, {file}", apart, "times", 1.03))
    return figures


def beside(subject: Subject) -> list[Figure]:
    """Section b."""
    requests = {name: one for name, one in subject.requests().items() if "sessions" not in one}
    bundle, arrays = _built(subject)
    turns: dict[tuple[str, int], list[Mapping[str, Any]]] = defaultdict(list)
    for _ in range(subject.rounds):
        for neighbours in range(3):
            for name, request in requests.items():
                turns[name, neighbours].append(turn({**request, "neighbours": neighbours}))
            runs = int(subject.seconds / turns[OURS, neighbours][-1]["p50_seconds"])
            with busy_processes(neighbours):
                turns[C, neighbours].append(c_turn(bundle, arrays, max(1, runs)))
    medians = {
        (key, *place): median_of(found, f"{key}_seconds")
        for place, found in turns.items()
        for key in ("p50", "p99")
    }
    ratio = medians["p50", C, 0] / medians["p50", OURS, 0]
    figures = [_same_bits(subject, bundle), Figure(f"{C} over {OURS}: p50", ratio, "times")]
    bars = {1: 1.75, 2: 2.1}
    for name in (OURS, C, *(one for one in requests if one != OURS)):
        own = name in (OURS, C)
        for neighbours in range(3):
            p50, p99 = (medians[key, name, neighbours] for key in ("p50", "p99"))
            where = f"{name}, {counted(neighbours, 'neighbour')}"
            figures.append(Figure(f"{where}: p50", 1e3 * p50, "ms"))
            figures.append(Figure(f"{where}: p99", 1e3 * p99, "ms"))
            if neighbours:
                ratio = p50 / medians["p50", name, 0]
                bar = bars[neighbours] if own else None
                figures.append(Figure(f"{where}: p50 over quiet", ratio, "times", bar))
            bar = 2.0 if own and neighbours == 1 else None
            figures.append(Figure(f"{where}: p99 over p50", p99 / p50, "times", bar))
    for name in requests:
        for own in (OURS, C) if name != OURS else ():
            for neighbours in range(3):
                ratio = medians["p50", name, neighbours] / medians["p50", own, neighbours]
                bar = 1.5 if neighbours else None
                words = f"{name} over {own}, {counted(neighbours, 'neighbour')}: p50"
                figures.append(Figure(words, ratio, "times", bar, least=True))
    return figures


def _built(subject: Subject) -> tuple[Path, list[str]]:
    """The bundle for C with its example, and files of the inputs."""
    bundle = subject.scratch / "bundle"
    write_c_bundle(subject.folder, bundle, "net")
    flags = ["-std=c++17", "-O2", "-L.", "-Wl,-rpath,$ORIGIN", "-o", "example"]
    compiler = shutil.which("g++") or "c++"
    subprocess.run([compiler, "main.cpp", *flags, "-lnet"], cwd=bundle, check=True)
    names = []
    with np.load(subject.scratch / "inputs.npz") as stored:
        for place, name in enumerate(stored.files):
            np.save(bundle / f"x{place}.npy", stored[name])
            names.append(f"x{place}.npy")
    return bundle, names


def _same_bits(subject: Subject, bundle: Path) -> Figure:
    """Whether Python and C give the same outputs."""
    file = subject.scratch / "outputs.npz"
    turn({**subject.requests()[OURS], "outputs": str(file), "seconds": 0.0})
    with np.load(file) as stored:
        same = [
            stored[name].tobytes() == np.load(bundle / f"output{place}.npy").tobytes()
            for place, name in enumerate(stored.files)
        ]
    return Figure(
        "outputs from Python and from C that are the same bits",
        sum(same),
        "",
        len(same),
        least=True,
    )


def torch_before(subject: Subject) -> list[Figure]:
    """Section c."""
    turns: dict[tuple[str, bool], list[Mapping[str, Any]]] = defaultdict(list)
    for _ in range(subject.rounds):
        for name, request in subject.requests().items():
            for before in (False, True):
                turns[name, before].append(turn({**request, "torch": True, "before": before}))
    figures = []
    for name in subject.requests():
        without, before = (median_of(turns[name, one], "p50_seconds") for one in (False, True))
        bar = 1.3 if name == OURS else None
        figures += [
            Figure(f"{name}: p50 without", 1e3 * without, "ms"),
            Figure(f"{name}: p50 after torch", 1e3 * before, "ms"),
            Figure(f"{name}: after torch over without", before / without, "times", bar),
        ]
    return figures


def limited(subject: Subject) -> list[Figure]:
    """Section d."""
    turns: dict[tuple[str, str], list[Mapping[str, Any]]] = defaultdict(list)
    single, free = subject.requests(threads=1), subject.requests()
    with one_core() as prefix:
        for _ in range(subject.rounds):
            for name in free:
                turns[name, "one thread"].append(turn(single[name]))
                turns[name, "in the group"].append(turn(free[name], prefix=prefix))
    figures = []
    for name in free:
        figures += [
            Figure(
                f"{name}, {place}: {key}",
                1e3 * median_of(turns[name, place], f"{key}_seconds"),
                "ms",
            )
            for place in ("one thread", "in the group")
            for key in ("p50", "p99")
        ]
        # Threads that use up the group's time early answer fast, and then for long not at all.
        alone, group = (
            median_of(turns[name, place], "requests_per_second")
            for place in ("one thread", "in the group")
        )
        bar = 1.1 if name == OURS else None
        words = f"{name}: mean in the group over one thread's"
        figures.append(Figure(words, alone / group, "times", bar))
    return figures


def two_streams(subject: Subject) -> list[Figure]:
    """Section e."""
    turns: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for _ in range(subject.rounds):
        for name, request in subject.requests(streams=2).items():
            turns[name].append(turn(request))
    rates = {name: median_of(found, "requests_per_second") for name, found in turns.items()}
    figures = [Figure(f"{name}: requests", rate, "/s") for name, rate in rates.items()]
    for name in (one for one in rates if one != OURS):
        bar = 1.1 if "sess" not in name else None
        figures.append(
            Figure(
                f"requests over those of {name}",
                rates[OURS] / rates[name],
                "times",
                bar,
                least=True,
            )
        )
    return figures


def cold(subject: Subject) -> list[Figure]:
    """Section f."""
    turns: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    loaded = _loaded(subject)
    # The first start reads files from the disk and compiles Python.
    for start in range(subject.rounds + 1):
        for name, (by, path) in loaded.items():
            python = subject.python if by == "network" else sys.executable
            with answering(by, path, str(subject.scratch / "inputs.npz"), python) as (
                process,
                took,
            ):
                if start:
                    turns[name].append({"seconds": took, **memory(process)})
    figures = []
    for name, (by, path) in loaded.items():
        bar = 0.25 if name == OURS else None
        figures.append(Figure(f"{name}: first answer", median_of(turns[name], "seconds"), "s", bar))
        figures += [
            Figure(f"{name}: {key.upper()}", median_of(turns[name], key) / MIB, "MiB")
            for key in ("rss", "pss")
        ]
        files = [Path(path)] if by != "network" else list(Path(path).iterdir())
        files += [Path(path).with_suffix(".bin")] if by == "openvino" else []
        size = sum(file.stat().st_size for file in files if file.is_file())
        figures.append(Figure(f"{name}: files", size / MIB, "MiB"))
        figures.append(Figure(f"{name}: packages beside NumPy", _package_bytes(by) / MIB, "MiB"))
    return figures


def crowd(subject: Subject) -> list[Figure]:
    """Section g."""
    figures = []
    for name, (by, path) in _loaded(subject).items():
        python = subject.python if by == "network" else sys.executable
        sums = []
        for count in (1, CROWD):
            with contextlib.ExitStack() as stack:
                started = [
                    stack.enter_context(
                        answering(by, path, str(subject.scratch / "inputs.npz"), python)
                    )
                    for _ in range(count)
                ]
                sums.append(sum(memory(process)["pss"] for process, _ in started))
        one, many = sums
        figures += [
            Figure(f"{name}: PSS of one process", one / MIB, "MiB"),
            Figure(f"{name}: PSS of {CROWD}", many / MIB, "MiB"),
            Figure(f"{name}: each further process", (many - one) / (CROWD - 1) / MIB, "MiB"),
            Figure(f"{name}: {CROWD} over one", many / one, "times"),
        ]
    return figures


def _loaded(subject: Subject) -> dict[str, tuple[str, str]]:
    others = {name: (file.framework, file.path) for name, file in subject.files.items()}
    return {OURS: ("network", str(subject.folder)), **others}


def _package_bytes(by: str) -> int:
    spec = None if by == "network" else importlib.util.find_spec(by)
    folders = [] if spec is None else list(spec.submodule_search_locations or ())
    files = (file for folder in folders for file in Path(folder).rglob("*"))
    return sum(file.stat().st_size for file in files if file.is_file() and not file.is_symlink())


SECTIONS: dict[str, tuple[str, Callable[[Subject], list[Figure]]]] = {
    "a": ("a fresh process", fresh),
    "b": ("busy neighbours", beside),
    "c": ("torch in the same process", torch_before),
    "d": ("one core of several", limited),
    "e": ("two clients", two_streams),
    "f": ("cold start", cold),
    "g": ("many processes", crowd),
}


def main(words: Sequence[str] | None = None) -> None:
    """Measure what the command line names, and print a table for each section."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    parser.add_argument("--only", default=",".join(SECTIONS), metavar="a,b,...")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="of a turn")
    parser.add_argument("--bare-python", default=sys.executable, metavar="PATH")
    parser.add_argument("--trust-source", action="store_true")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the figures go as well")
    given = parser.parse_args(words)
    chosen = given.only.split(",")
    unknown = [name for name in chosen if name not in SECTIONS]
    if unknown:
        parser.error(f"--only takes {', '.join(SECTIONS)}, not {unknown[0]!r}")
    cpu = describe()["cpu"]["model"]
    print(f"{os.cpu_count()} cores of {cpu}\n")
    results: dict[str, Any] = {"processor": cpu, "cores": os.cpu_count(), "runs": {}}
    for run in given.runs:
        with tempfile.TemporaryDirectory(prefix="chameleon-served-") as scratch:
            subject = subject_of(run, Path(scratch), given)
            sections = results["runs"].setdefault(str(run), {})
            for name in chosen:
                title, section = SECTIONS[name]
                try:
                    figures = section(subject)
                except (FailedError, ChameleonError) as error:
                    figures = [Figure(f"left out: {error}", None)]
                sections[name] = [{**attrs.asdict(one), "met": one.met} for one in figures]
                print(f"### {run.name}: {title}\n\n{table(figures)}\n", flush=True)
                if given.json is not None:
                    given.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def subject_of(run: Path, scratch: Path, given: argparse.Namespace) -> Subject:
    """The network of a run folder with files for others."""
    with RunView(run) as view:
        frontend = network_of(view.model_choice(trust_source=given.trust_source), view)
    if isinstance(frontend, BucketedFrontend):
        raise SystemExit(f"{run} has a network in buckets of shapes, which has no section here.")
    network = frontend.network
    delivered = (run / RunFile.NETWORK).absolute()
    # Python keeps what it compiles beside `load.py`; the delivered folder stays as it is.
    folder = scratch / RunFile.NETWORK
    folder.mkdir()
    for file in delivered.iterdir():
        if file.is_file():
            (folder / file.name).symlink_to(file)
    own = delivered_precision(delivered, network).precision.split(",")[0]
    names = tuple(name for name in ("openvino", "onnxruntime") if name in network.frameworks)
    reduced = () if own == "float32" else (own,)
    files, left_out = write_model_files(network, () if reduced else names, reduced, None, scratch)
    for name, why in {**network.left_out, **left_out}.items():
        print(f"{name} left out: {why}\n", flush=True)
    np.savez(scratch / "inputs.npz", *network.samples(np.random.default_rng(0)))
    return Subject(
        run=run,
        folder=folder,
        scratch=scratch,
        files=files,
        rounds=given.rounds,
        seconds=given.seconds,
        python=given.bare_python,
    )


def table(figures: Sequence[Figure]) -> str:
    """Figures in Markdown."""
    lines = ["| figure | value | bar | met |", "|---|---|---|---|"]
    for one in figures:
        value = "" if one.value is None else f"{one.value:.3g} {one.unit}".strip()
        bar = "" if one.bar is None else f"{'>=' if one.least else '<='} {one.bar:g}"
        met = {None: "", True: "yes", False: "**no**"}[one.met]
        lines.append(f"| {one.name} | {value} | {bar} | {met} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
