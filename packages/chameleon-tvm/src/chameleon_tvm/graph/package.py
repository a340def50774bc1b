"""The folder a network is delivered in: module, manifest, loader."""

from __future__ import annotations

import json
import platform
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from chameleon_core.errors import TargetError
from chameleon_core.versions import installed
from chameleon_system.files import write_whole

from chameleon_tvm.cpus.features import host_features, used_features
from chameleon_tvm.graph.chains import Chain
from chameleon_tvm.graph.kernels import Kernels
from chameleon_tvm.graph.operators import left_over
from chameleon_tvm.spaces.loops.template import KIND as LOOPS
from chameleon_tvm.targets import tvm_target

MANIFEST = "manifest.json"
MODULE = "network.so"
_FORMAT = 1


def check_compiler() -> None:
    """Make sure that a shared library can be linked.

    Raises:
        TargetError: there is no C compiler.
    """
    if not any(shutil.which(name) for name in ("cc", "gcc", "clang", "g++", "clang++")):
        raise TargetError(
            "the network cannot be linked: there is no C compiler (cc, gcc or clang) on the PATH",
            hint="Install one, then run `chameleon compile` on the run folder; nothing has to "
            "be tuned again.",
        )


def check_target(target: str) -> None:
    """Make sure that a network for a target can be run, and so verified, on this machine.

    Raises:
        TargetError: it is no CPU, or one with features that this one lacks.
    """
    resolved = tvm_target(target)
    if resolved.kind.name != "llvm":
        raise TargetError(
            f"whole networks are compiled for CPUs only, and the target is {resolved.kind.name!r}",
            hint="The tuned operators are in the run folder; `chameleon best` shows them.",
        )
    lacking = sorted(used_features(resolved) - host_features())
    if lacking:
        raise TargetError(
            f"the network cannot be verified here: this CPU lacks {', '.join(lacking)}",
            hint="Run `chameleon compile` on the run folder on a machine of the target's kind.",
        )


def write_package(folder: Path, executable: Any, manifest: dict[str, Any]) -> None:
    """Write the folder of a network.

    Args:
        folder: made where it is missing.
        executable: a ``relax.Executable`` or ``SequenceExecutable``; weights are part of it.
        manifest: what ``manifest_of`` made, or another one that names the module.
    """
    folder.mkdir(parents=True, exist_ok=True)
    executable.export_library(str(folder / manifest["module"]))
    write_loader(folder)
    write_manifest(folder, manifest)


def write_loader(folder: Path, *, buckets: bool = False) -> None:
    """Put the loader, which needs TVM alone, into a folder.

    Args:
        folder: of a network.
        buckets: whether it is one of several shapes.
    """
    for name in ("load.py", "buckets.py") if buckets else ("load.py",):
        shutil.copyfile(Path(__file__).with_name(name), folder / name)


def read_manifest(folder: Path) -> dict[str, Any]:
    """What the manifest of a folder says."""
    found: dict[str, Any] = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    return found


def write_manifest(folder: Path, manifest: dict[str, Any]) -> None:
    """Write or replace the manifest alone; whoever reads it sees the old one or the new one."""
    write_whole(folder / MANIFEST, json.dumps(manifest, indent=1) + "\n")


def manifest_of(
    module: Any, chains: Sequence[Chain], kernels: Kernels, target: str, threads: int
) -> dict[str, Any]:
    """What is in the folder and where it comes from, as JSON values.

    Args:
        module: the prepared network.
        chains: its chains.
        kernels: those that are tuned.
        target: the resolved target.
        threads: that kernels were measured with.
    """
    resolved = tvm_target(target)
    occurrences = Counter(kernels.task_of(chain).key for chain in chains)
    for key, winner in kernels.winners.items():
        if winner.task.operator == LOOPS:
            occurrences[key] = winner.task.weight
    untuned = Counter(
        chain.spec.kind for chain in chains if kernels.task_of(chain).key not in kernels.winners
    )
    return {
        "format": _FORMAT,
        "module": MODULE,
        "target": json.loads(target),
        "cpu_features": sorted(used_features(resolved)),
        "threads": threads,
        **signature_of(module),
        "versions": installed(("apache-tvm", "apache-tvm-ffi", "chameleon-tuner-tvm", "numpy")),
        "system": platform.platform(),
        "tasks": [
            {
                "name": winner.task.name,
                "key": key,
                "occurrences": occurrences[key],
                "operator": winner.task.operator,
                "arguments": dict(winner.task.arguments),
                "config": list(winner.config),
                "seconds": winner.seconds,
                "measured": winner.measured,
            }
            for key, winner in kernels.winners.items()
            if occurrences[key]
        ],
        "untuned": {**left_over(module, chains), **untuned},
    }


def signature_of(module: Any) -> dict[str, list[dict[str, Any]]]:
    """Shapes and types of a network's ``inputs`` and ``outputs``, as JSON values.

    Args:
        module: the prepared network.
    """
    return {
        "inputs": [{"name": str(one.name), **_described(one)} for one in module["main"].params],
        "outputs": [_described(one) for one in _outputs(module["main"].ret_ty)],
    }


def _outputs(kind: Any) -> list[Any]:
    return list(kind.fields) if hasattr(kind, "fields") else [kind]


def _described(value: Any) -> dict[str, Any]:
    kind = getattr(value, "ty", value)
    return {"shape": [int(extent) for extent in kind.shape], "dtype": str(kind.dtype)}
