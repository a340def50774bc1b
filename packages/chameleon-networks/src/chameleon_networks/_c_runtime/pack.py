"""Packs the weights of the operator in this folder; needs no library but NumPy.

``python pack.py weights.npy [bias.npy ...]`` writes ``weights.bin``. ``pack_weights`` returns the
same bytes as an array.
"""

import hashlib
import json
import pathlib
import sys
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

PACK, PACKING, ARRAYS, PACKED = "pack.py", "packing.json", "packing.npz", "weights.bin"
PACKING_FILES = (PACK, PACKING, ARRAYS)
ALIGNMENT = 64
MAGIC = int.from_bytes(b"CHLEWHT2", "little")


def pack_weights(*constants: Any, folder: Any = pathlib.Path(__file__).parent) -> Any:
    """Return the content of a ``weights.bin`` with some constants in the kernel's layout.

    Args:
        constants: One array for each entry of ``inputs`` in ``packing.json``: the weights, then a
            bias and other constants. The axes of the weights are output channels, input channels,
            and the spatial axes.
        folder: The folder of the operator.

    Returns:
        An array of uint8. Its method ``tofile("weights.bin")`` writes the file.

    Raises:
        ValueError: The number, a shape or the values of the constants do not fit the operator.
        RuntimeError: A file of the folder is missing or was changed.
    """
    _check_files(pathlib.Path(folder))
    packing = json.loads(pathlib.Path(folder, PACKING).read_text())
    inputs = [_checked(array, wanted) for array, wanted in _pairs(constants, packing["inputs"])]
    with np.load(pathlib.Path(folder, ARRAYS), allow_pickle=False) as stored:
        arrays = replayed(packing, inputs, [stored[name] for name in packing["constants"]])
        return joined(arrays, packing["layout"])


def _check_files(folder: Any) -> None:
    try:
        known = json.loads((folder / "manifest.json").read_bytes())["files"]
        digests = [known[name]["sha256"] for name in PACKING_FILES]
        files = [(folder / name).read_bytes() for name in PACKING_FILES]
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise RuntimeError(f"{folder} is damaged; deliver the operator again: {error}") from error
    if [hashlib.sha256(file).hexdigest() for file in files] != digests:
        raise RuntimeError(f"{folder} was changed since it was delivered; deliver it again")


def replayed(packing: Mapping[str, Any], inputs: list[Any], constants: list[Any]) -> list[Any]:
    """Repeat the recorded NumPy operations that pack constants, and return the packed arrays."""
    for array, index in zip(inputs, packing["fixed"], strict=True):
        if index is not None and array.tobytes() != constants[index].tobytes():
            raise ValueError(
                "the kernel was compiled for other numbers of quantization; deliver it for these"
            )
    arrays = [array.copy() for array in inputs]
    for name, args, options in packing["steps"]:
        first, *others = [_value(argument, arrays, constants) for argument in args]
        named = {key: _value(argument, arrays, constants) for key, argument in options.items()}
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
    return [_value(output, arrays, constants) for output in packing["outputs"]]


def joined(packed: list[Any], layout: int) -> Any:
    """The bytes of a file ``weights.bin`` with some packed arrays: a table, then the arrays."""
    offsets, table = weights_table(packed, layout)
    file = np.zeros(offsets[-1], np.uint8)
    file[: table.nbytes] = table.view(np.uint8)
    for start, data in zip(offsets, packed):  # noqa: B905 - the last offset is the end
        file[start : start + data.nbytes] = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
    return file


def weights_table(constants: Sequence[Any], layout: int) -> tuple[list[int], Any]:
    """The byte offset of each constant and of the end, and the table (int64) of the file."""
    end = aligned(8 * (2 * len(constants) + 5))
    offsets, sums = [], []
    for constant in constants:
        offsets.append(end)
        sums.append(checksum(constant, aligned(constant.nbytes)))
        end += aligned(constant.nbytes)
    offsets.append(end)
    table = np.array([MAGIC, layout, len(constants), *offsets, *sums, 0], np.int64)
    table[-1] = zlib.crc32(table[:-1].tobytes())
    return offsets, table


def checksum(constant: Any, size: int) -> int:
    """The checksum of an array in a file of weights: the CRC-32 of its bytes and padding."""
    data = np.ascontiguousarray(constant).reshape(-1).view(np.uint8).data
    return zlib.crc32(bytes(size - data.nbytes), zlib.crc32(data))


def aligned(size: int) -> int:
    """A size in bytes, rounded up to a multiple of ``ALIGNMENT``."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def _pairs(constants: Any, wanted: list[Any]) -> Any:
    if len(constants) != len(wanted):
        names = ", ".join(entry["name"] for entry in wanted)
        raise ValueError(f"the operator's constants are {names}, not {len(constants)} arrays")
    return zip(constants, wanted, strict=True)


def _checked(array: Any, wanted: Mapping[str, Any]) -> Any:
    if list(np.shape(array)) != wanted["shape"]:
        raise ValueError(f"{wanted['name']} must have shape {wanted['shape']}")
    return np.array(array, _dtype(wanted["dtype"]), order="C")


def _dtype(name: str) -> Any:
    if name == "bfloat16":
        import ml_dtypes  # noqa: PLC0415 - a type that NumPy lacks

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name)


def _value(argument: Any, arrays: list[Any], constants: list[Any]) -> Any:
    """The value of a recorded argument, in which arrays and constants are references."""
    if not isinstance(argument, dict):
        return argument
    [(kind, value)] = argument.items()
    if kind == "array":
        return arrays[value]
    if kind == "constant":
        return constants[value]
    if kind == "dtype":
        return _dtype(value)
    if kind == "ellipsis":
        return Ellipsis
    inside = [_value(part, arrays, constants) for part in value]
    return slice(*inside) if kind == "slice" else (tuple(inside) if kind == "tuple" else inside)


def main(words: list[str]) -> None:
    """Pack the arrays of some ``.npy`` files, and write ``weights.bin`` beside this file."""
    folder = pathlib.Path(__file__).parent
    pack_weights(*map(np.load, words)).tofile(folder / PACKED)
    sys.stdout.write(f"{folder / PACKED}\n")


_pack_weights = pack_weights
_ALONE = "pack"
"""The name of this module if the folder itself, and not the folder above it, is on ``sys.path``."""

if __name__ == "__main__":
    main(sys.argv[1:])
elif __name__ == _ALONE:
    del pack_weights

    def __getattr__(name: str) -> Any:
        """The function ``pack_weights``, after which another folder's may be imported."""
        if name != "pack_weights":
            raise AttributeError(f"{__file__} defines no {name}")
        if getattr(sys.modules.get(_ALONE), "__file__", None) == __file__:
            del sys.modules[_ALONE]
        return _pack_weights
