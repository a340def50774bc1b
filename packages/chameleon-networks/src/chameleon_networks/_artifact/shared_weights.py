"""Moves the weights of several delivered networks into one file."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from chameleon_networks._artifact.load import Manifest
from chameleon_networks._artifact.writer import read_manifest, write_manifest
from chameleon_networks._compile.sequence.weights import WEIGHTS, read_weights, write_weights


def share_weights(folder: Path, networks: Iterable[Path]) -> int:
    """Move all networks' weights into one file without duplicates; return the saved bytes."""
    known: dict[bytes, int] = {}
    constants: list[NDArray[Any]] = []
    manifests: dict[Path, Manifest] = {}
    saved = 0
    sharing = [own for own in networks if (own / WEIGHTS).exists()]
    for own in sharing:
        numbers = []
        for constant in read_weights(own / WEIGHTS):
            digest = hashlib.blake2b(constant.data).digest()
            if digest in known:
                saved += constant.nbytes
            else:
                known[digest] = len(constants)
                constants.append(constant)
            numbers.append(known[digest])
        manifests[own] = {**read_manifest(own), "shared_weights": WEIGHTS, "constants": numbers}
    whole = folder / f"all-{WEIGHTS}"
    if sharing:
        write_weights(constants, whole)
    for own in manifests:
        (own / WEIGHTS).unlink()
    if sharing:
        whole.rename(folder / WEIGHTS)
    for own, manifest in manifests.items():
        write_manifest(own, manifest)
    return saved
