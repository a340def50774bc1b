"""Files of weights: constants one after the other, with a table of where each begins.

A file begins with the number of constants, their offsets, and its size, all int64 in the order of
this machine's bytes; ``load.py`` of a delivered folder reads it.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chameleon_tvm.graph.sequence.plan import aligned


def write_weights(constants: Sequence[NDArray[Any]], file: Path) -> None:
    """Write constants into a file, each on a unit of ``plan.ALIGNMENT`` of its own."""
    end = aligned(8 * (len(constants) + 2))
    offsets = []
    for constant in constants:
        offsets.append(end)
        end = aligned(end + constant.nbytes)
    with file.open("wb") as stream:
        stream.write(np.array([len(constants), *offsets, end], np.int64).data)
        for offset, constant in zip(offsets, constants, strict=True):
            stream.seek(offset)
            stream.write(np.ascontiguousarray(constant).reshape(-1).view(np.uint8).data)
        stream.truncate(end)


def read_weights(file: Path) -> list[NDArray[Any]]:
    """The constants of a file as bytes, up to where the next one begins; read when looked at."""
    whole = np.memmap(file, np.uint8, mode="r")
    count = int(whole[:8].view(np.int64)[0])
    places = whole[8 : 8 * (count + 2)].view(np.int64).tolist()
    return [whole[start:end] for start, end in itertools.pairwise(places)]
