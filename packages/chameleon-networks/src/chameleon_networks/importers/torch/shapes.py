"""Programs of torch with inputs of other shapes than those of the example."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from chameleon_core.errors import ConfigError
from chameleon_core.words import did_you_mean

Shapes = Mapping[str, Sequence[int]]
Keywords = dict[str, Any]
Export = Callable[[tuple[Any, ...], Keywords], Any]
"""Makes a program from positional and keyword inputs."""


def with_shapes(program: Any, shapes: Shapes, export: Export, owner: str) -> Any:
    """The program of the same network for inputs of the shapes asked for.

    An example is cropped, or repeated from its start, along each axis, so that the ids in it stay
    valid ones.

    Args:
        program: the ``torch.export.ExportedProgram`` for the example inputs.
        shapes: of inputs by name.
        export: exports the network with other inputs.
        owner: the network, for errors.

    Raises:
        ConfigError: it has no such input, or one of another rank; or ``export`` raises it.
    """
    tree = importlib.import_module("torch.utils._pytree")
    leaves, structure = tree.tree_flatten(program.example_inputs)
    names = [str(name) for name in program.graph_signature.user_inputs]
    tensors = input_tensors(program)
    _check(tensors, shapes, owner)
    if all(tuple(tensors[name].shape) == tuple(shape) for name, shape in shapes.items()):
        return program
    resized = [
        _resized(leaf, shapes[name]) if name in shapes else leaf
        for name, leaf in zip(names, leaves, strict=True)
    ]
    positional, keywords = tree.tree_unflatten(resized, structure)
    return export(tuple(positional), dict(keywords))


def input_tensors(program: Any) -> Keywords:
    """The tensors among a program's example inputs by name, in the order of its placeholders."""
    torch = importlib.import_module("torch")
    tree = importlib.import_module("torch.utils._pytree")
    names, leaves = program.graph_signature.user_inputs, tree.tree_leaves(program.example_inputs)
    return {
        str(name): leaf
        for name, leaf in zip(names, leaves, strict=True)
        if isinstance(leaf, torch.Tensor)
    }


def _check(tensors: Mapping[str, Any], shapes: Shapes, owner: str) -> None:
    said = ", ".join(f"{name}: {list(tensor.shape)}" for name, tensor in tensors.items())
    for name, shape in shapes.items():
        if name not in tensors:
            raise ConfigError(
                f"{owner} has no input {name!r}{did_you_mean(name, tensors)}",
                hint=f"Its inputs are {said}.",
            )
        if len(shape) != tensors[name].ndim or 0 in tensors[name].shape:
            raise ConfigError(
                f"input {name!r} of {owner} is {list(tensors[name].shape)} in the example, which "
                f"cannot be made {list(shape)}",
                hint=f"Give as many extents as it has axes. Its inputs are {said}.",
            )


def _resized(example: Any, shape: Sequence[int]) -> Any:
    torch = importlib.import_module("torch")
    for axis, extent in enumerate(shape):
        places = torch.arange(extent) % example.shape[axis]
        example = example.index_select(axis, places)
    return example


def check_saved(program: Any, shapes: Shapes, file: str) -> None:
    """See that a saved program takes inputs of other shapes.

    Args:
        program: the ``torch.export.ExportedProgram`` of the file.
        shapes: of inputs by name.
        file: the file.

    Raises:
        ConfigError: it was exported for one shape alone.
    """
    for node in program.graph.nodes:
        asked = shapes.get(node.name) if node.op == "placeholder" else None
        for axis, (extent, known) in enumerate(
            zip(asked or (), getattr(node.meta.get("val"), "shape", ()), strict=False)
        ):
            if isinstance(known, int) and known != extent:
                raise ConfigError(
                    f"{file} was saved with {known} as axis {axis} of {node.name!r}, and {extent} "
                    "is asked for",
                    hint="Save it with `dynamic_shapes` of torch.export.export for that axis, or "
                    "name the function that makes the network instead of the file.",
                )
