"""The files that a delivered network was read from, in its manifest."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

import attrs
from chameleon_core.plugin_api import RunFolderError

from chameleon_networks._artifact.load import Manifest, checked_manifest, has_form
from chameleon_networks._source_files import (
    SourceFile,
    absolute,
    is_pattern,
    read_sources,
    state_of,
)

SOURCES = "sources"
"""Key of a manifest with the files that the delivered network was read from."""

_SHOWN = 3
"""Most changed files that a message names."""


def sources_for(manifest_folder: Path, sources: Mapping[str, SourceFile]) -> Manifest:
    """The entry of a manifest about source files, whose paths are relative to its folder."""
    return {
        SOURCES: {
            os.path.relpath(path, manifest_folder): attrs.asdict(source)
            for path, source in sources.items()
        }
    }


def changed_files(folder: Path) -> list[str]:
    """The files that have changed since the network of a folder was made from them."""
    known = checked_manifest(folder).get(SOURCES, {})
    if not has_form(known, {str: {"digest": str, "state": [int]}}):
        raise RuntimeError(f"the manifest in {folder} is damaged; deliver the network again")
    changed = []
    for name, source in known.items():
        path = absolute(folder / name)
        # Files may be gone, for example on another machine.
        with contextlib.suppress(OSError):
            known = Path(path).is_file() or is_pattern(path)
            if not known or state_of(path) == tuple(source["state"]):
                continue
            if read_sources([path])[path].digest != source["digest"]:
                changed.append(path)
    return changed


def check_source_files(folder: Path) -> None:
    """Check that no file of the model or its data has changed since a network was delivered.

    Args:
        folder: The folder of the delivered network, in its run folder.

    Raises:
        RunFolderError: A file has changed. The message names it.
    """
    try:
        changed = changed_files(folder)
    except RuntimeError:
        return  # a damaged folder, which other checks report
    if not changed:
        return
    more = f" and {len(changed) - _SHOWN} more files" if len(changed) > _SHOWN else ""
    verb = "has" if len(changed) == 1 else "have"
    raise RunFolderError(
        f"{', '.join(changed[:_SHOWN])}{more} {verb} changed since the network in {folder.parent} "
        "was made",
        hint=f"`chameleon compile {folder.parent} --fresh` delivers the model as it is now, with "
        "the kernels of the run; `chameleon run --fresh` tunes it anew.",
    )
