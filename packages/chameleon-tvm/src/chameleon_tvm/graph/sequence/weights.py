"""Files of weights: constants one after the other, with a table of where each begins.

The table consists of int64 in the order of this machine's bytes: a magic number, the layout, the
number of constants, their offsets, the size of the file, a CRC-32 for each constant up to where the
next one begins, and the CRC-32 of the table up to there. ``runtime/weights.c`` reads it.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chameleon_tvm.runtime.pack import aligned, checksum, weights_table

WEIGHTS = "weights.bin"
"""Name of the file of weights beside a library, unless the manifest names another one."""


def write_weights(constants: Sequence[NDArray[Any]], file: Path, layout: int = 0) -> None:
    """Write constants into a file, each on a unit of ``plan.ALIGNMENT`` of its own.

    Args:
        constants: in order.
        file: is replaced.
        layout: of an operator's weights; 0 for those of networks.
    """
    offsets, table = weights_table(constants, layout)
    with file.open("wb") as stream:
        stream.write(table.data)
        for offset, constant in zip(offsets, constants, strict=False):
            stream.seek(offset)
            stream.write(np.ascontiguousarray(constant).reshape(-1).view(np.uint8).data)
        stream.truncate(offsets[-1])


def read_weights(file: Path) -> list[NDArray[Any]]:
    """The constants of a file as bytes, up to where the next one begins; read when looked at."""
    whole = np.memmap(file, np.uint8, mode="r")
    count = int(whole[16:24].view(np.int64)[0])
    offsets = whole[24 : 8 * (count + 4)].view(np.int64).tolist()
    return [whole[start:end] for start, end in itertools.pairwise(offsets)]


def checksums(constants: Sequence[NDArray[Any]]) -> list[int]:
    """The checksums that a file has of constants."""
    return [checksum(constant, aligned(constant.nbytes)) for constant in constants]
