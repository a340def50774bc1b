"""A delivered network or operator as a bundle for C: header, library, weights, an example."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

from chameleon_core.errors import ConfigError, RunFolderError, TargetError
from chameleon_tvm.building.exporting import unoccupied
from chameleon_tvm.words import identifier

from chameleon_networks.compile.sequence.weights import WEIGHTS, copy_weights, link_weights
from chameleon_networks.package.package import (
    MANIFEST,
    check_compiler,
    digest_of_file,
    read_manifest,
)
from chameleon_networks.runtime.linking import OBJECTS, filled, link_library
from chameleon_networks.runtime.pack import PACKING, PACKING_FILES


def name_for(folder: Path, given: str | None) -> str:
    """What a bundle is called.

    Args:
        folder: where it goes, which names it where nothing else does.
        given: what was asked for.

    Raises:
        ConfigError: C has no such names.
    """
    name = given or identifier(folder.absolute().name)
    if not name.isascii() or not name.isidentifier() or name.startswith("_"):
        raise ConfigError(
            f"a library for C cannot be called {name!r}",
            hint="Name it with --name, in letters, digits and underscores, a letter first.",
        )
    return name


def write_c_bundle(delivered: Path, folder: Path, name: str) -> tuple[Path, ...]:
    """Write the bundle of a delivered folder.

    Args:
        delivered: what ``chameleon run`` left in ``network``, or ``deliver_operator`` wrote.
        folder: made where it is missing.
        name: of the library.

    Returns:
        The files.

    Raises:
        ConfigError: there is no bundle for such a network, or a file is there already.
        TargetError: there is no bundle for this system, or no C compiler.
        RunFolderError: a file of the delivered folder was changed.
        ChameleonError: the library cannot be linked.
    """
    manifest = read_manifest(delivered)
    _refuse(delivered, manifest)
    texts = {f"{name}.h": "header.h", "CMakeLists.txt": "CMakeLists.txt", "main.cpp": "main.cpp"}
    copied = [one for one in (MANIFEST, *PACKING_FILES) if (delivered / one).exists()]
    names = [*texts, f"lib{name}.so", WEIGHTS, *copied]
    unoccupied(folder, names)
    files = tuple(folder / one for one in names)
    try:
        for text, template in texts.items():
            (folder / text).write_text(filled(template, manifest, name), encoding="utf-8")
        for one in copied:
            shutil.copyfile(delivered / one, folder / one)
        # Whoever packs weights writes over the file, which must be the bundle's own then.
        place_weights = copy_weights if PACKING in copied else link_weights
        place_weights(delivered / WEIGHTS, folder / WEIGHTS)
        link_library(delivered / OBJECTS, manifest, folder / f"lib{name}.so", name)
    except BaseException:
        # Half a bundle would only be in the way of the next try.
        for file in files:
            file.unlink(missing_ok=True)
        raise
    return files


def _refuse(delivered: Path, manifest: dict[str, Any]) -> None:
    """Refuse what there is no bundle for."""
    if not sys.platform.startswith("linux"):
        raise TargetError(
            "bundles for C are made on Linux only", hint="Load the network from Python instead."
        )
    check_compiler()
    if "buckets" in manifest:
        raise ConfigError(
            "a network in buckets of shapes has no bundle for C: it is several networks",
            hint="Tune it in one shape, or load it from Python, with its load.py.",
        )
    if manifest.get("virtual_machine"):
        raise ConfigError(
            f"TVM's virtual machine runs this network, because {manifest['virtual_machine']}; a "
            "bundle for C holds no such machine",
            hint="Load it from Python, with its load.py.",
        )
    if "apache-tvm" in manifest["needs"]:
        raise ConfigError(
            "its kernels call functions of TVM's, such as sorting, which C alone does not have",
            hint="Load it from Python, with its load.py.",
        )
    if not (delivered / OBJECTS).exists():
        raise ConfigError(
            f"{delivered} has no {OBJECTS}: an earlier version delivered it",
            hint="Run `chameleon compile` on the run folder, which tunes nothing, then export.",
        )
    if manifest.get("objects") != digest_of_file(delivered / OBJECTS):
        raise RunFolderError(
            f"{delivered / OBJECTS} was changed since it was delivered",
            hint="`chameleon compile` on the run folder delivers it anew.",
        )
