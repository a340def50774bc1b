"""The artifact that a builder hands to a device: a library, its inputs, and a recipe for them."""

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
    """One parameter of the exported function.

    Attributes:
        shape: of the physical array.
        dtype: of its elements.
        digest: names the file with an input's values; empty for an output. Inputs of equal
            digests are equal, so that a device keeps one between candidates.
    """

    shape: tuple[int, ...]
    dtype: str
    digest: str = ""


@attrs.frozen(kw_only=True)
class Recipe:
    """How an artifact becomes a kernel.

    Attributes:
        target: the canonical target that the library is compiled for.
        library: name of its file: ``.so``, or a ``.tar`` of objects that is linked where it runs.
        arguments: the parameters of its function ``main``: inputs, then outputs.
        task: the task whose operator makes logical outputs of the physical ones, as JSON; None
            if they are the same. Whoever reads the outputs rebuilds it.
    """

    target: str
    library: str
    arguments: tuple[Argument, ...]
    task: dict[str, Any] | None = None

    @property
    def inputs(self) -> tuple[Argument, ...]:
        """The parameters that are read."""
        return tuple(argument for argument in self.arguments if argument.digest)

    @property
    def outputs(self) -> tuple[Argument, ...]:
        """The parameters that are written."""
        return tuple(argument for argument in self.arguments if not argument.digest)


def store_input(folder: Path, array: NDArray[Any]) -> Argument:
    """Write an input under its digest, unless it is there, and describe it."""
    array = np.ascontiguousarray(array)
    digest = _digest(array)
    path = folder / f"{digest}.npy"
    if not path.exists():
        np.save(path, array, allow_pickle=False)
    return Argument(shape=array.shape, dtype=array.dtype.name, digest=digest)


def load_input(folder: Path, argument: Argument) -> NDArray[Any]:
    """Read an input.

    Raises:
        ValueError: the file holds something else than its name says.
        OSError: there is no such file.
    """
    array: NDArray[Any] = np.load(folder / f"{argument.digest}.npy", allow_pickle=False)
    if array.dtype.name != argument.dtype:
        # NumPy writes types that it does not know itself, such as bfloat16, as so many bytes.
        array = array.view(np.dtype(argument.dtype))
    if _digest(array) != argument.digest:
        raise ValueError(f"the input {argument.digest[:12]} of the artifact is damaged")
    return array


def write_recipe(folder: Path, recipe: Recipe) -> None:
    """Write the recipe, which completes the artifact."""
    text = json.dumps({"format": _FORMAT, **attrs.asdict(recipe)})
    (folder / RECIPE).write_text(text, encoding="utf-8")


def read_recipe(folder: Path) -> Recipe:
    """Read an artifact's recipe.

    Raises:
        ValueError: it is damaged, or of another version of this package.
        OSError: there is none.
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
    """Parameters that are written, from their shapes and dtypes."""
    return [Argument(shape=shape, dtype=dtype) for shape, dtype in buffers]


def _digest(array: NDArray[Any]) -> str:
    digest = hashlib.sha256(f"{array.dtype.name}{array.shape}".encode())
    digest.update(np.ascontiguousarray(array).view(np.ubyte).reshape(-1).data)
    return digest.hexdigest()[:32]
