"""Weights of several buckets in one file, in which what is equal byte by byte is there once.

The kernels of a layer may be tuned differently for each bucket, and pack its weights differently
then; embeddings, biases and whatever is packed alike are the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from chameleon_networks.compile.sequence.weights import WEIGHTS, read_weights, write_weights
from chameleon_networks.package.package import read_manifest, write_manifest


def share_weights(folder: Path, buckets: Mapping[str, Path]) -> int:
    """Put the weights of buckets into one file, and their numbers in it into the manifests.

    Networks that the virtual machine runs have theirs in the module, and keep them there.

    Args:
        folder: gets the file.
        buckets: folders of networks in it, by name.

    Returns:
        Bytes that are there once instead of several times.
    """
    known: dict[bytes, int] = {}
    constants: list[NDArray[Any]] = []
    manifests: dict[Path, dict[str, Any]] = {}
    saved = 0
    sharing = {name: own for name, own in buckets.items() if (own / WEIGHTS).exists()}
    for own in sharing.values():
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
    if sharing:
        write_weights(constants, folder / WEIGHTS)
    for own, manifest in manifests.items():
        (own / WEIGHTS).unlink()
        write_manifest(own, manifest)
    return saved
