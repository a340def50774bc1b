"""Reads and writes files of weights: a table of offsets, then the constants one after another.

The table consists of int64 in the byte order of this machine. It holds a magic number, the layout,
the number of constants, their offsets and the size of the file. Then comes the CRC-32 of each
constant with its padding up to the next constant. The last number is the CRC-32 of the table before
it. ``runtime/weights.c`` reads these files.
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
    """Write constants into a file, each at a multiple of ``runtime.pack.ALIGNMENT``.

    Args:
        constants: The constants, in order.
        file: The file, which is overwritten.
        layout: The number of the layout of an operator's weights; 0 for networks.

    Returns:
        The checksum of each constant with its padding (``runtime.pack.checksum``).
    """
    offsets, table = weights_table(constants, layout)
    places = itertools.pairwise((0, *offsets))
    parts = map(_filled, (table, *constants), places)
    _write(itertools.chain.from_iterable(parts), file)
    sums: list[int] = table[-1 - len(constants) : -1].tolist()
    return sums


def link_weights(source: Path, target: Path) -> None:
    """Make a file of weights appear at a second path: a hard link if possible, else a copy.

    Args:
        source: The file. It must never be changed in place.
        target: The new path, which must not exist.
    """
    try:
        os.link(source.resolve(), target)
    except OSError:
        copy_weights(source, target)


def copy_weights(source: Path, target: Path) -> None:
    """Copy a file with the weights of a network.

    Args:
        source: The file to copy.
        target: The new file, which is overwritten.
    """
    with source.open("rb", buffering=0) as stream:
        _write(iter(lambda: stream.read(_CHUNK), b""), target)


def _filled(array: NDArray[Any], span: tuple[int, int]) -> Iterable[memoryview | bytes]:
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
    """Read the constants of a file of weights, each as an array of bytes with its padding.

    The file is mapped into memory, not read.
    """
    whole = np.memmap(file, np.ubyte, mode="r")
    count = int(whole[16:24].view(np.int64)[0])
    offsets = whole[24 : 8 * (count + 4)].view(np.int64).tolist()
    return [whole[start:end] for start, end in itertools.pairwise(offsets)]
