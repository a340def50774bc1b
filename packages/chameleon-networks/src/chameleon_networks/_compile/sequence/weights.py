"""Reads and writes weight files: an int64 table, then aligned constants.

The table has a magic number, the layout, the count, offsets, the size, and CRC-32 of each padded
constant and of itself; ``runtime/weights.c`` reads it.
"""

from __future__ import annotations

import io
import itertools
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chameleon_networks._c_runtime.pack import weights_table

WEIGHTS = "weights.bin"
"""Name of the file of weights beside a library, unless the manifest names another one."""

_CHUNK = 16 << 20
"""Bytes of one write. Systems with huge pages for files use them only if writes are large."""


def write_weights(constants: Sequence[NDArray[Any]], file: Path, layout: int = 0) -> list[int]:
    """Write constants into a file, each at a multiple of ``runtime.pack.ALIGNMENT``."""
    offsets, table = weights_table(constants, layout)
    places = itertools.pairwise((0, *offsets))
    parts = map(_with_padding, (table, *constants), places)
    _write(itertools.chain.from_iterable(parts), file)
    sums: list[int] = table[-1 - len(constants) : -1].tolist()
    return sums


def link_weights(source: Path, target: Path) -> None:
    """Hard-link a weight file to a second path, or else copy it."""
    try:
        os.link(source.resolve(), target)
    except OSError:
        copy_weights(source, target)


def copy_weights(source: Path, target: Path) -> None:
    """Copy a file with the weights of a network."""
    with source.open("rb", buffering=0) as stream:
        _write(iter(lambda: stream.read(_CHUNK), b""), target)


def _with_padding(array: NDArray[Any], span: tuple[int, int]) -> Iterable[memoryview | bytes]:
    """The bytes of an array, and zeros up to the beginning of the next array."""
    data = np.ascontiguousarray(array).reshape(-1).view(np.ubyte).data
    return data, bytes(span[1] - span[0] - data.nbytes)


def _write(parts: Iterable[memoryview | bytes], file: Path) -> None:
    """Write parts of bytes into a file, in chunks of ``_CHUNK`` bytes."""
    chunk, filled = memoryview(bytearray(_CHUNK)), 0
    with file.open("wb", buffering=0) as stream:
        for part in parts:
            start = 0
            while start < len(part):
                count = min(len(part) - start, _CHUNK - filled)
                chunk[filled : filled + count] = part[start : start + count]
                start, filled = start + count, filled + count
                if filled == _CHUNK:
                    _write_all(chunk, stream)
                    filled = 0
        _write_all(chunk[:filled], stream)


def _write_all(data: memoryview, stream: io.FileIO) -> None:
    while data:
        data = data[stream.write(data) :]


def read_weights(file: Path) -> list[NDArray[Any]]:
    """Map the constants of a weight file into memory, as padded arrays of bytes."""
    whole = np.memmap(file, np.ubyte, mode="r")
    count = int(whole[16:24].view(np.int64)[0])
    offsets = whole[24 : 8 * (count + 4)].view(np.int64).tolist()
    return [whole[start:end] for start, end in itertools.pairwise(offsets)]
