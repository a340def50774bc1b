"""Packs weights for the operator in this folder; needs NumPy and nothing else.

``python pack.py weights.npy [bias.npy ...]`` writes weights.bin, whose bytes ``pack_weights``
returns.
"""

import json
import pathlib
import sys
from typing import Any

import numpy as np

PACKING, ARRAYS, PACKED = "packing.json", "packing.npz", "weights.bin"
ALIGNMENT = 64


def pack_weights(*constants: Any, folder: Any = pathlib.Path(__file__).parent) -> Any:
    """The bytes of a weights.bin that holds these constants as the kernel reads them.

    Args:
        constants: an array for each of the ``inputs`` of packing.json: weights, in the order output
            channels, input channels, spatial axes, then a bias and what else the operator has.
        folder: where the operator is.

    Returns:
        An array of uint8, for its ``tofile("weights.bin")``.
    """
    told = json.loads(pathlib.Path(folder, PACKING).read_text())
    given = [_checked(one, wanted) for one, wanted in _pairs(constants, told["inputs"])]
    with np.load(pathlib.Path(folder, ARRAYS), allow_pickle=False) as kept:
        return joined(replayed(told, given, [kept[name] for name in told["constants"]]))


def replayed(told: dict[str, Any], given: list[Any], kept: list[Any]) -> list[Any]:
    """What the recorded operations make of arrays.

    Args:
        told: what packing.json says.
        given: its inputs.
        kept: its constants.
    """
    for array, place in zip(given, told["fixed"], strict=True):
        if place is not None and array.tobytes() != kept[place].tobytes():
            raise ValueError(
                "the kernel was compiled for other numbers of quantisation; deliver it for these"
            )
    arrays = [array.copy() for array in given]
    for name, args, options in told["steps"]:
        first, *others = [_value(one, arrays, kept) for one in args]
        named = {key: _value(one, arrays, kept) for key, one in options.items()}
        if name == "getitem":
            arrays.append(first[others[0]])
        elif name == "setitem":
            first[others[0]] = others[1]
        elif name.startswith("method."):
            arrays.append(getattr(first, name.partition(".")[2])(*others, **named))
        else:
            function: Any = np
            for part in name.split(".")[1:]:
                function = getattr(function, part)
            arrays.append(function(first, *others, **named))
    return [_value(one, arrays, kept) for one in told["outputs"]]


def joined(packed: list[Any]) -> Any:
    """Arrays as the bytes of a file: their number, their offsets, its size, then the arrays."""
    offsets, end = [], _aligned(8 * (len(packed) + 2))
    for one in packed:
        offsets.append(end)
        end = _aligned(end + one.nbytes)
    made = np.zeros(end, np.uint8)
    made[: 8 * (len(packed) + 2)] = np.array([len(packed), *offsets, end], np.int64).view(np.uint8)
    for start, one in zip(offsets, packed, strict=True):
        made[start : start + one.nbytes] = np.ascontiguousarray(one).reshape(-1).view(np.uint8)
    return made


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _pairs(constants: Any, wanted: list[Any]) -> Any:
    if len(constants) != len(wanted):
        names = ", ".join(one["name"] for one in wanted)
        raise ValueError(f"the operator's constants are {names}, not {len(constants)} arrays")
    return zip(constants, wanted, strict=True)


def _checked(array: Any, wanted: dict[str, Any]) -> Any:
    if list(np.shape(array)) != wanted["shape"]:
        raise ValueError(f"{wanted['name']} must have shape {wanted['shape']}")
    return np.array(array, _dtype(wanted["dtype"]), order="C")


def _dtype(name: str) -> Any:
    if name == "bfloat16":
        import ml_dtypes  # noqa: PLC0415 - a type that NumPy lacks

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name)


def _value(told: Any, arrays: list[Any], kept: list[Any]) -> Any:
    """An argument as it was when the operation was recorded."""
    if not isinstance(told, dict):
        return told
    [(kind, value)] = told.items()
    if kind == "array":
        return arrays[value]
    if kind == "constant":
        return kept[value]
    if kind == "dtype":
        return _dtype(value)
    if kind == "ellipsis":
        return Ellipsis
    inside = [_value(one, arrays, kept) for one in value]
    return slice(*inside) if kind == "slice" else (tuple(inside) if kind == "tuple" else inside)


def main(words: list[str]) -> None:
    """Write weights.bin beside this file."""
    folder = pathlib.Path(__file__).parent
    pack_weights(*map(np.load, words)).tofile(folder / PACKED)
    sys.stdout.write(f"{folder / PACKED}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
