"""Networks of torch as exported programs: built in, of the user's, or saved."""

from __future__ import annotations

import contextlib
import importlib
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from chameleon_core.errors import ConfigError
from chameleon_tvm.sources import named_object
from chameleon_tvm.words import first_line

from chameleon_networks.importers.builtin.records import NETWORKS
from chameleon_networks.importers.source_checks import no_torch
from chameleon_networks.importers.torch.messages import torch_messages_held_back
from chameleon_networks.importers.torch.randomness import without_chance, without_dropout
from chameleon_networks.importers.torch.shapes import (
    Shapes,
    check_saved,
    input_tensors,
    with_shapes,
)
from chameleon_networks.importers.torch.training import evaluated


def builtin_program(
    name: str, batch: int, dtype: str = "float32", shapes: Shapes = MappingProxyType({})
) -> Any:
    """A built-in network with random weights.

    Args:
        name: a key of ``NETWORKS``.
        batch: samples per inference.
        dtype: of weights and images.
        shapes: of inputs that are to have others than usual, by name.

    Raises:
        ConfigError: it cannot have such inputs.
    """
    torch = _torch()
    from chameleon_networks.importers.builtin.weights import initialise  # noqa: PLC0415 - needs torch

    record = NETWORKS[name]
    module, _, function = record.factory.partition(":")
    network = initialise(getattr(importlib.import_module(module), function)())
    network = network.to(getattr(torch, dtype))
    shape = (batch, *record.inputs)
    if record.kind == "tokens":
        # The largest id there is says how far random ones may go.
        example = torch.full(shape, record.vocabulary - 1, dtype=torch.int64)
    else:
        example = torch.zeros(shape, dtype=getattr(torch, dtype))
    return _shaped(network, (example,), {}, shapes, name)


def exported(source: str, shapes: Shapes = MappingProxyType({})) -> Any:
    """The program of a user's function that returns a module and example inputs.

    Args:
        source: ``path.py:function`` or ``package.module:function``.
        shapes: of inputs that are to have others than the examples, by name.

    Raises:
        ConfigError: there is no such function, it fails, or torch cannot export its network.
    """
    torch = _torch()
    made = _made(source)
    if not isinstance(made, tuple) or len(made) != 2:  # noqa: PLR2004
        raise ConfigError(
            f"{source} returned a {type(made).__name__} instead of a pair",
            hint="Return the torch module and a tuple of example inputs.",
        )
    network, inputs = made
    if not isinstance(network, torch.nn.Module):
        raise ConfigError(
            f"{source} returned a {type(network).__name__} instead of a torch module",
            hint="Return the torch module and a tuple of example inputs.",
        )
    _check_float(network, source)
    program = _shaped(evaluated(network), *_arguments(inputs), shapes, source)
    return without_chance(without_dropout(program))


def _check_float(network: Any, source: str) -> None:
    """See that a network is one of modules in Python that compute with floats."""
    if isinstance(network, _torch().jit.ScriptModule):
        raise ConfigError(
            f"{source} returned a TorchScript module, which torch does not export",
            hint="Return the module that was traced or scripted.",
        )
    kinds = [type(module) for module in network.modules()]
    # `torch.ao.nn.quantized` and its like; a user's own module may have such a name, too.
    names = [k.__name__ for k in kinds if re.match(r"torch\b.*\bquantized\b", k.__module__)]
    if names:
        raise ConfigError(
            f"{source} returned a quantized network, one with a {names[0]}",
            hint="Return the network as it was before, in float32, or quantized by pt2e "
            "(prepare_pt2e, convert_pt2e).",
        )


def _shaped(
    network: Any, positional: tuple[Any, ...], keywords: dict[str, Any], shapes: Shapes, owner: str
) -> Any:
    """The program of a network for the shapes asked for, else for those of its example inputs."""
    torch = _torch()

    def export(positional: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        try:
            with torch.no_grad(), torch_messages_held_back():
                return torch.export.export(network, positional, keywords)
        except Exception as error:
            raise ConfigError(
                f"torch cannot export the network of {owner}: {first_line(error)}",
                hint=_unexportable(error),
            ) from error

    program = export(positional, keywords)
    return with_shapes(program, shapes, export, owner) if shapes else program


def _arguments(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Example inputs by place and by name: a tensor, a sequence, a mapping, or a pair of both."""
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    if not isinstance(inputs, tuple | list):
        return (inputs,), {}
    pair = 2
    if len(inputs) == pair and isinstance(inputs[0], tuple | list) and isinstance(inputs[1], dict):
        return tuple(inputs[0]), inputs[1]
    return tuple(inputs), {}


_ABOUT_VALUES = ("data-dependent", "unbacked", "fake tensor", "faketensor")
"""In torch's words for code that needs the values of tensors while it is exported."""


def _unexportable(error: Exception) -> str:
    """Where the code is that torch refuses, and what to do about it."""
    lines = [line.strip() for line in str(error).splitlines()]
    frames = [place for place, line in enumerate(lines) if line.startswith("File ")]
    written = ""
    if frames:
        last = lines[frames[-1] : frames[-1] + 2]
        written = f"It is about {', '.join(last)}. "
    words = str(error).lower()
    if not any(one in words for one in _ABOUT_VALUES):
        return (
            f"{written}Call torch.export.export(network, inputs) by hand for its whole traceback."
        )
    return (
        f"{written}What the code does must not depend on the values of tensors: write such an "
        "`if` with torch.where, or decide it outside of the network."
    )


def loaded(file: str, shapes: Shapes = MappingProxyType({})) -> Any:
    """A program saved by ``torch.export.save``.

    Args:
        file: the file.
        shapes: of inputs that are to have others than the examples it was saved with, by name.

    Raises:
        ConfigError: the file is none, or of a program that takes no such inputs.
    """
    torch = _torch()
    program = _loaded(file)
    if not shapes:
        return program
    check_saved(program, shapes, file)

    def export(positional: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        try:
            with torch.no_grad(), torch_messages_held_back():
                return torch.export.export(program.module(), positional, keywords)
        except Exception as error:
            raise ConfigError(
                f"{file} cannot be exported for other shapes: {first_line(error)}",
                hint="Save it with `dynamic_shapes` that allow them.",
            ) from error

    return with_shapes(program, shapes, export, file)


def _loaded(file: str) -> Any:
    torch = _torch()
    # Torch knows the steps of a quantized program once this is imported.
    with contextlib.suppress(ImportError):
        importlib.import_module("torch.ao.quantization.fx._decomposed")
    try:
        program = torch.export.load(file)
    except Exception as error:
        raise ConfigError(
            f"{file} is no program saved by torch.export: {first_line(error)}",
            hint="Save one with torch.export.save(torch.export.export(module, inputs), file).",
        ) from error
    return without_chance(without_dropout(program))


def example_tensors(program: Any) -> list[Any]:
    """The tensors among a program's example inputs, in the order of its placeholders."""
    tree = importlib.import_module("torch.utils._pytree")
    tensor = _torch().Tensor
    return [one for one in tree.tree_leaves(program.example_inputs) if isinstance(one, tensor)]


def example_names(program: Any) -> list[str]:
    """Names of what ``example_tensors`` returns."""
    return list(input_tensors(program))


def _made(source: str) -> Any:
    function = named_object(source, "model")
    torch = _torch()
    try:
        # Processes that run the network beside this one make it again: random weights have to be
        # the same in all of them.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return function()
    except Exception as error:
        raise ConfigError(
            f"{source} failed: {first_line(error)}",
            hint="Call the function by hand to see the whole traceback.",
        ) from error


def _torch() -> Any:
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        raise no_torch() from error
