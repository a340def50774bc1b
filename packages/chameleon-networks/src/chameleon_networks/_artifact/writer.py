"""Writes the folder of a delivered network: library, manifest and loader."""

from __future__ import annotations

import hashlib
import json
import platform
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from chameleon_core.api import installed
from chameleon_core.plugin_api import RunFolderError, TargetError
from chameleon_system.api import write_atomic
from chameleon_tvm.api import KIND as LOOPS
from chameleon_tvm.api import flag_of, host_features, tvm_target, used_features

from chameleon_networks._artifact.load import (
    LIBRARY,
    STATE,
    VIRTUAL_MACHINE,
    Manifest,
    checked_manifest,
    digest_of,
)
from chameleon_networks._c_runtime.linking import OBJECTS, link_library
from chameleon_networks._c_runtime.pack import PACK, PACKING_FILES
from chameleon_networks._compile.kernels import Kernels
from chameleon_networks._compile.sequence.weights import WEIGHTS
from chameleon_networks._graph.fusion_groups import FusionGroup
from chameleon_networks._graph.operators import count_unfused_operators
from chameleon_networks._graph.relax_utils import counted_axes, state_count

MANIFEST = "manifest.json"
MODULE = "network.so"

LIBRARY_CODE, MACHINE_CODE, BUCKETS_CODE = "_library.py", "_machine.py", "_buckets.py"
LEVELS_CODE = "_levels.py"
"""Files of a folder with the code that runs its network."""
PACKAGE = "__init__.py"
_LOADERS = (PACKAGE, "load.py", LIBRARY_CODE, MACHINE_CODE, BUCKETS_CODE, LEVELS_CODE)
VERSIONED = (
    *("apache-tvm", "apache-tvm-ffi", "numpy"),
    *("chameleon-tuner-networks", "chameleon-tuner-tvm"),
)
"""Distributions whose versions are part of a manifest."""

FORMAT = 4
"""Number of the form of manifests and objects that this version writes."""


def check_target(target: str) -> None:
    """Check that this machine can run a network that is compiled for a target, to verify it."""
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


def write_artifact(
    folder: Path, executable: Any, manifest: Manifest, *, is_inner: bool = False
) -> None:
    """Write the folder of a compiled network, perhaps inside the folder of another one."""
    folder.mkdir(parents=True, exist_ok=True)
    library, objects = folder / manifest["module"], folder / OBJECTS
    executable.export_library(str(library))
    if objects.exists():
        link_library(objects, manifest, library, library.stem)
        digest = digest_of_file(objects)
        facts: Manifest = {"run_time": LIBRARY, "needs": ["numpy"], "objects": digest}
        write_loader(folder, LIBRARY_CODE, is_inner=is_inner)
    else:
        facts = {"run_time": VIRTUAL_MACHINE, "needs": ["numpy", "apache-tvm"]}
        write_loader(folder, MACHINE_CODE, is_inner=is_inner)
    write_manifest(folder, {**manifest, **facts})


def write_loader(folder: Path, engine: str, *, is_inner: bool = False) -> None:
    """Copy ``load.py``, and the file with which it runs the network, into a network's folder.

    Args:
        folder: The network's folder.
        engine: The name of the file with which ``load.py`` runs the network.
        is_inner: Whether the folder is a part of another network's folder, and no package.
    """
    for name in ("load.py", engine):
        add_loader_file(folder, name)
    if not is_inner:
        functions = {"load": "load"}
        if (folder / PACK).exists():
            functions["pack"] = "pack_weights"
        imports = [f"from .{module} import {name}\n" for module, name in functions.items()]
        docstring = '"""A compiled network or operator; the function ``load`` loads it."""\n\n'
        listed = f"\n__all__ = {json.dumps(list(functions.values()))}\n"
        (folder / PACKAGE).write_text(docstring + "".join(imports) + listed, encoding="utf-8")


def add_loader_file(folder: Path, name: str) -> None:
    """Copy a file with code that loads a network into the network's folder."""
    shutil.copyfile(Path(__file__).with_name(name.removeprefix("_")), folder / name)


def write_state(folder: Path, initial: Sequence[Any]) -> None:
    """Write the arrays that a new state begins with into a network's folder, unless all are zeros.

    Args:
        initial: The array of each buffer, in the order of the manifest's ``state``.
    """
    stored = {str(number): array for number, array in enumerate(initial) if array.any()}
    if stored:
        np.savez(folder / STATE, **stored)


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of a delivered folder, without its key ``files``."""
    try:
        manifest = checked_manifest(folder)
    except RuntimeError as error:
        raise RunFolderError(
            str(error), hint="`chameleon compile` on the run folder delivers it anew."
        ) from error
    return {key: value for key, value in manifest.items() if key != "files"}


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest in one step, with digests of the folder's files and its own digest."""
    files = {
        file.name: _known(file)
        for file in sorted(folder.iterdir())
        if file.name in {manifest.get("module"), WEIGHTS, STATE, *_LOADERS, *PACKING_FILES}
    }
    whole = json.loads(json.dumps({**manifest, "files": files}))
    text = json.dumps({**whole, "digest": digest_of(whole)}, indent=1)
    write_atomic(folder / MANIFEST, text + "\n")


def _known(file: Path) -> Manifest:
    """The size of a file and its digest; weights have no digest, since they have checksums."""
    size = file.stat().st_size
    if file.name == WEIGHTS:
        return {"bytes": size}
    return {"bytes": size, "sha256": digest_of_file(file)}


def digest_of_file(file: Path) -> str:
    """The SHA-256 of a file."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def manifest_of(
    module: Any, fusions: Sequence[FusionGroup], kernels: Kernels, target: str, threads: int
) -> Manifest:
    """Describe the content of a network's folder and how it was made, as JSON values."""
    occurrences = Counter(kernels.task_of(fusion).key for fusion in fusions)
    for key, winner in kernels.winners.items():
        if winner.task.operator == LOOPS:
            occurrences[key] = winner.task.weight
    untuned = Counter(
        fusion.spec.kind for fusion in fusions if kernels.task_of(fusion).key not in kernels.winners
    )
    return {
        **build_facts(MODULE, target, threads),
        **signature_of(module),
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
        "untuned": {**count_unfused_operators(module, fusions), **untuned},
    }


def build_facts(module: str, target: str, threads: int) -> Manifest:
    """The target, CPU features (LLVM's names and Linux's flags), versions and threads."""
    names = sorted(used_features(tvm_target(target)))
    return {
        "format": FORMAT,
        "module": module,
        "target": json.loads(target),
        "cpu_features": names,
        "cpu_flags": {name: flag_of(name) for name in names},
        "threads": threads,
        "versions": installed(VERSIONED),
        "system": platform.platform(),
    }


def signature_of(module: Any) -> Manifest:
    """The shapes and dtypes of a Relax module's ``inputs`` and ``outputs``, for its manifest.

    The names of buffers that a call changes are its ``state``. They are the last inputs. The key
    ``counts`` has pairs of an output and an axis for each count, which follows the outputs.
    """
    main, returned = module["main"], module["main"].ret_ty
    outputs = returned.fields if hasattr(returned, "fields") else [returned]
    inputs = [tensor_facts(parameter) for parameter in main.params]
    state, counts = state_count(main), counted_axes(main)
    return {
        "inputs": inputs,
        "outputs": [_described(one) for one in outputs][: len(outputs) - state - len(counts)],
        **({"counts": counts} if counts else {}),
        **({"state": [tensor["name"] for tensor in inputs[-state:]]} if state else {}),
    }


def tensor_facts(tensor: Any) -> Manifest:
    """The name, the shape and the dtype of a variable of Relax or of a buffer."""
    return {"name": str(tensor.name), **_described(tensor.ty)}


def _described(kind: Any) -> Manifest:
    return {"shape": [int(extent) for extent in kind.shape], "dtype": str(kind.dtype)}
