"""The command ``chameleon env``: versions, machine and settings that results depend on.

It imports none of the libraries whose versions it shows. Plugins that need such a library describe
the machine in a child process (``python -m chameleon_cli._env FUNCTION``). So a library that cannot
run on this machine ends only the child process.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from chameleon_core.api import Registry, installed
from chameleon_core.plugin_api import load_factory
from chameleon_system.api import (
    AnswerStream,
    ChildEndedError,
    ChildProcess,
    Conversation,
    Processor,
    allowed_cores,
    cpu_quota,
    describe_status,
    processor_name,
    this_processor,
    usable_cores,
)

PACKAGES = (
    "apache-tvm",
    "apache-tvm-ffi",
    "torch",
    "numpy",
    "xgboost",
    "xgboost-cpu",
    "lightgbm",
    "scikit-learn",
    "onnx",
    "ray",
)
"""Third-party packages whose versions may change the results of a run."""

VARIABLES = (
    "TVM_NUM_THREADS",
    "TVM_BIND_THREADS",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "CUDA_VISIBLE_DEVICES",
)
"""Environment variables that change timings."""

_PROBLEM = "problem"
"""The only key of a plugin's description of the machine if the plugin fails."""

_SECONDS = 60.0
"""The longest time in which a plugin describes the machine."""

_VECTORS = re.compile(r"(avx|fma|f16c|amx|asimd|sve|i8mm|bf16)\w*|sme2?")
"""Flags of vector and matrix instructions."""


@click.command("env", epilog="Example: chameleon env")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(as_json: bool) -> None:
    """Show versions, processor, caches, threads, and the instructions that kernels use.

    Add the output to a bug report.
    """
    machine = describe()
    if as_json:
        click.echo(json.dumps(machine, indent=2))
        return
    quota = machine["cpu"]["quota"]
    rows = [
        ("python", machine["python"]),
        ("platform", machine["platform"]),
        ("cpu", machine["cpu"]["model"] or "unknown"),
        ("instructions", " ".join(machine["cpu"]["instructions"]) or "unknown"),
        *([("lacking", " ".join(lacking))] if (lacking := machine["cpu"]["lacking"]) else []),
        *(row for facts in machine["targets"].values() for row in _rows(facts)),
        ("cores", f"{machine['cpu']['usable']} usable of {machine['cpu']['logical']} logical"),
        ("affinity", f"{machine['cpu']['affinity']} cores"),
        ("quota", f"{quota:.3g} cores" if quota is not None else "none"),
        *((f"cache {cache['name']}", _size(cache["bytes"])) for cache in machine["cpu"]["caches"]),
        ("memory", _size(machine["memory_bytes"])),
        *((name, version or "not installed") for name, version in machine["packages"].items()),
        *((name, value) for name, value in machine["variables"].items() if value is not None),
    ]
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        click.echo(f"{name:{width}}  {value}")
    for error in machine["plugin_errors"]:
        click.echo(f"warning: {error}", err=True)


def describe() -> dict[str, Any]:
    """Describe versions, machine and settings as JSON values: sizes in bytes, null if unknown."""
    registry = Registry.default()
    processor = this_processor()
    packages = (*sorted({*installed(), *registry.distributions}), *PACKAGES)
    versions = installed(packages)
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpu": {
            "model": processor_name() or None,
            "instructions": _instructions(processor),
            "lacking": list(processor.missing_flags) if processor is not None else [],
            "logical": os.cpu_count(),
            "usable": len(usable_cores()),
            "affinity": len(allowed_cores()),
            "quota": cpu_quota(),
            "caches": _caches(),
        },
        "memory_bytes": _memory(),
        "targets": {
            registry.full_name(entry): _described(entry.record.machine)
            for entry in registry.entries("targets")
            if entry.record.machine
        },
        "packages": {name: versions.get(name) for name in packages},
        "variables": {name: os.environ.get(name) for name in VARIABLES},
        "plugin_errors": [str(error) for error in registry.errors],
    }


def _instructions(processor: Processor | None) -> list[str]:
    """The flags of vector and matrix instructions."""
    flags = processor.flags if processor is not None else frozenset()
    return sorted(flag for flag in flags if _VECTORS.fullmatch(flag))


def _described(function: str) -> dict[str, Any]:
    """The description of this machine that a function of a plugin returns in a child process."""
    try:
        with ChildProcess("chameleon_cli._env", [function], stdout=subprocess.PIPE) as child:
            try:
                return Conversation(child).answer(_SECONDS)
            except ChildEndedError:
                return {_PROBLEM: f"its process ended with {describe_status(child.kill())}"}
    except (OSError, TimeoutError) as error:
        return {_PROBLEM: f"its process does not answer: {type(error).__name__} {error}".strip()}


def _describe(function: str) -> None:
    """Send the description that a function of a plugin returns to the parent process."""
    answers = AnswerStream()
    try:
        answers.send(load_factory(function)())
    except Exception as error:  # noqa: BLE001 - a plugin's function may raise anything
        answers.send({_PROBLEM: f"{type(error).__name__}: {error}"})


def _rows(facts: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The rows of a plugin's description of this machine."""
    if _PROBLEM in facts:
        yield "target", f"unknown: {facts[_PROBLEM]}"
        return
    for name, value in facts.items():
        text = value
        if isinstance(value, dict):
            text = "; ".join(f"{key}: {said}" for key, said in value.items()) or "none"
        if text:
            yield name.replace("_", " "), str(text)


def _caches() -> list[dict[str, Any]]:
    """The caches of the first core, as Linux lists them; empty on other systems."""
    units = {"K": 1024, "M": 1024**2, "G": 1024**3}
    caches = []
    for folder in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind, size = (_read(folder / name).strip() for name in ("level", "type", "size"))
        if not (level and size[:-1].isdecimal() and size[-1] in units):
            continue
        letter = {"Data": "d", "Instruction": "i"}.get(kind, "")
        caches.append({"name": f"L{level}{letter}", "bytes": int(size[:-1]) * units[size[-1]]})
    return caches


def _memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _size(count: int | None) -> str:
    if count is None:
        return "unknown"
    for unit, factor in (("GiB", 1024**3), ("MiB", 1024**2), ("KiB", 1024)):
        if count >= factor:
            return f"{count / factor:.4g} {unit}"
    return f"{count} B"


if __name__ == "__main__":
    _describe(*sys.argv[1:])
