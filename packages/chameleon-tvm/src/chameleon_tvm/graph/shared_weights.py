"""Weights of several buckets, each stored once: what is equal byte by byte is shared.

The kernels of a layer may be tuned differently for each bucket, and pack its weights differently
then; embeddings, biases and whatever is packed alike are the same. Constants that the same buckets
use are in one file together, so that a bucket reads what it needs and nothing else.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import attrs
import numpy as np

from chameleon_tvm.graph.package import WEIGHTS, read_manifest, write_manifest
from chameleon_tvm.graph.sequence.plan import aligned


@attrs.frozen(kw_only=True)
class _Place:
    """Where the bytes of a constant are."""

    file: Path
    offset: int
    size: int

    def read(self) -> bytes:
        return np.fromfile(self.file, np.uint8, self.size, offset=self.offset).tobytes()


def share_weights(folder: Path, buckets: Mapping[str, Path]) -> int:
    """Put the weights of buckets into files beside them, and their places into the manifests.

    A bucket whose module holds its weights itself keeps them.

    Args:
        folder: gets the files.
        buckets: folders of networks in it, by name.

    Returns:
        Bytes that are stored once instead of several times.
    """
    manifests = {name: read_manifest(one) for name, one in buckets.items()}
    digests: dict[str, list[str]] = {}
    places: dict[str, _Place] = {}
    users: dict[str, set[str]] = defaultdict(set)
    for name, manifest in manifests.items():
        digests[name] = []
        for file, offset, size in manifest.get("weights", ()):
            place = _Place(file=buckets[name] / file, offset=offset, size=size)
            digest = hashlib.blake2b(place.read(), digest_size=20).hexdigest()
            digests[name].append(digest)
            places.setdefault(digest, place)
            users[digest].add(name)
    together: dict[frozenset[str], list[str]] = defaultdict(list)
    for digest, names in users.items():
        together[frozenset(names)].append(digest)
    moved: dict[str, list[str | int]] = {}
    for group in together.values():
        moved.update(_written(folder, {digest: places[digest] for digest in group}))
    for name, manifest in manifests.items():
        if "weights" in manifest:
            manifest["weights"] = [moved[digest] for digest in digests[name]]
            write_manifest(buckets[name], manifest)
            (buckets[name] / WEIGHTS).unlink()
    return sum(places[digest].size * (len(names) - 1) for digest, names in users.items())


def _written(folder: Path, places: Mapping[str, _Place]) -> dict[str, list[str | int]]:
    """Write constants into one file, named after what is in it.

    Returns:
        By digest the file as a bucket's folder sees it, the offset and the size.
    """
    whole = hashlib.blake2b("".join(places).encode(), digest_size=10).hexdigest()
    file = folder / f"weights-{whole}.bin"
    found: dict[str, list[str | int]] = {}
    with file.open("wb") as stream:
        for digest, place in places.items():
            stream.write(b"\0" * (aligned(stream.tell()) - stream.tell()))
            found[digest] = [f"../{file.name}", stream.tell(), place.size]
            stream.write(place.read())
    return found
