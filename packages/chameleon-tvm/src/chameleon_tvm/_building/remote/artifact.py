"""The folder that a builder exports for a device: a library, its inputs, and how to call it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import cattrs
import numpy as np
from numpy.typing import NDArray

RECIPE = "recipe.json"
_FORMAT = 1


@attrs.frozen(kw_only=True)
class Argument:
    """One parameter of an exported kernel's function, as the recipe of its artifact has it.

    ``digest`` is that of an input's values, and the name of their file; empty for an output.
    """

    shape: tuple[int, ...]
    dtype: str
    digest: str = ""


@attrs.frozen(kw_only=True)
class Recipe:
    """The metadata with which a device turns an artifact's files into a kernel.

    Attributes:
        library: Name of the library's file: ``.so``, or ``.tar`` with objects that the device's
            machine links.
        arguments: The parameters of the library's function ``main``: inputs, then outputs.
        task: JSON of the task whose operator converts physical outputs to logical outputs; None if
            both are the same.
    """

    target: str
    library: str
    arguments: tuple[Argument, ...]
    task: dict[str, Any] | None = None

    @property
    def inputs(self) -> tuple[Argument, ...]:
        """The parameters that the function reads."""
        return tuple(argument for argument in self.arguments if argument.digest)

    @property
    def outputs(self) -> tuple[Argument, ...]:
        """The parameters that the function writes."""
        return tuple(argument for argument in self.arguments if not argument.digest)


def store_input(folder: Path, array: NDArray[Any]) -> Argument:
    """Write an input to an artifact's folder, in a file named by its digest."""
    array = np.ascontiguousarray(array)
    digest = _digest(array)
    path = folder / f"{digest}.npy"
    if not path.exists():
        np.save(path, array, allow_pickle=False)
    return Argument(shape=array.shape, dtype=array.dtype.name, digest=digest)


def load_input(folder: Path, argument: Argument) -> NDArray[Any]:
    """Read an input from its file in an artifact's folder.

    Raises:
        ValueError: The values in the file do not have the expected digest.
        OSError: The file does not exist or cannot be read.
    """
    array: NDArray[Any] = np.load(folder / f"{argument.digest}.npy", allow_pickle=False)
    if array.dtype.name != argument.dtype:
        # NumPy writes dtypes of other libraries, such as bfloat16, as raw bytes.
        array = array.view(np.dtype(argument.dtype))
    if _digest(array) != argument.digest:
        raise ValueError(f"the input {argument.digest[:12]} of the artifact is damaged")
    return array


def write_recipe(folder: Path, recipe: Recipe) -> None:
    """Write the recipe, which is the last file of an artifact."""
    text = json.dumps({"format": _FORMAT, **attrs.asdict(recipe)})
    (folder / RECIPE).write_text(text, encoding="utf-8")


def read_recipe(folder: Path) -> Recipe:
    """Read the recipe in an artifact's folder, which says how to load the kernel.

    Raises:
        ValueError: The recipe is damaged, or another version of this package wrote it.
        OSError: The artifact has no recipe.
    """
    if not (folder / RECIPE).exists():
        raise FileNotFoundError(
            f"the artifact holds no compiled library ({RECIPE} is missing); kernels of vendors' "
            "libraries run on this machine's own devices alone"
        )
    value = json.loads((folder / RECIPE).read_text(encoding="utf-8"))
    if not isinstance(value, dict) or value.pop("format", None) != _FORMAT:
        raise ValueError("the artifact is not one that this version of chameleon_tvm reads")
    try:
        return cattrs.Converter(forbid_extra_keys=True).structure(value, Recipe)
    except cattrs.BaseValidationError as error:
        raise ValueError(f"the artifact's recipe is damaged: {error}") from error


def output_arguments(buffers: Sequence[tuple[tuple[int, ...], str]]) -> list[Argument]:
    """The parameters that a function writes, from their shapes and dtypes."""
    return [Argument(shape=shape, dtype=dtype) for shape, dtype in buffers]


def _digest(array: NDArray[Any]) -> str:
    digest = hashlib.sha256(f"{array.dtype.name}{array.shape}".encode())
    digest.update(np.ascontiguousarray(array).view(np.ubyte).reshape(-1).data)
    return digest.hexdigest()[:32]
