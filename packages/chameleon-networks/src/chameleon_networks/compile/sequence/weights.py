"""Files of weights: constants one after the other, with a table of their offsets.

The table consists of int64 in the order of this machine's bytes. It begins with a magic number, the
layout, the number of constants, their offsets and the size of the file. A CRC-32 of each constant
up to the next one follows, then that of the table up to there. ``runtime/weights.c`` reads it.
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

from chameleon_networks.runtime.pack import aligned, checksum, weights_table

WEIGHTS = "weights.bin"
"""Name of the file of weights beside a library, unless the manifest names another one."""

_CHUNK = 16 << 20
"""Bytes of a write; systems that keep files in huge pages do so for what large writes fill."""


def write_weights(constants: Sequence[NDArray[Any]], file: Path, layout: int = 0) -> None:
    """Write constants into a file, each on a unit of ``plan.ALIGNMENT`` of its own.

    Args:
        constants: in order.
        file: is replaced.
        layout: of an operator's weights; 0 for those of networks.
    """
    offsets, table = weights_table(constants, layout)
    places = itertools.pairwise((0, *offsets))
    parts = map(_filled, (table, *constants), places)
    _write(itertools.chain.from_iterable(parts), file)


def link_weights(source: Path, target: Path) -> None:
    """Give a file of weights a second place: the same file if the system can, else a copy.

    Args:
        source: is never written again, only replaced.
        target: is not there yet.
    """
    try:
        os.link(source.resolve(), target)
    except OSError:
        copy_weights(source, target)


def copy_weights(source: Path, target: Path) -> None:
    """Copy a file of weights.

    Args:
        source: the file.
        target: is replaced.
    """
    with source.open("rb", buffering=0) as stream:
        _write(iter(lambda: stream.read(_CHUNK), b""), target)


def _filled(array: NDArray[Any], span: tuple[int, int]) -> Iterable[memoryview | bytes]:
    """The bytes of an array, then zeros up to the beginning of the next one."""
    data = np.ascontiguousarray(array).reshape(-1).view(np.ubyte).data
    return data, bytes(span[1] - span[0] - data.nbytes)


def _write(parts: Iterable[memoryview | bytes], file: Path) -> None:
    """Write bytes into a file, ``_CHUNK`` of them at a time."""
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
    """The constants of a file as bytes, up to the beginning of the next one; read on demand."""
    whole = np.memmap(file, np.ubyte, mode="r")
    count = int(whole[16:24].view(np.int64)[0])
    offsets = whole[24 : 8 * (count + 4)].view(np.int64).tolist()
    return [whole[start:end] for start, end in itertools.pairwise(offsets)]


def checksums(constants: Sequence[NDArray[Any]]) -> list[int]:
    """The checksums that a file has of constants."""
    return [checksum(constant, aligned(constant.nbytes)) for constant in constants]
