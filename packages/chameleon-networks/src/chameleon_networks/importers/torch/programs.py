"""Networks of torch as exported programs: built in, of the user's, or saved."""

from __future__ import annotations

import contextlib
import importlib
import re
from collections.abc import Mapping
from typing import Any

import attrs
import structlog
from chameleon_core.errors import ConfigError
from chameleon_tvm.sources import named_object
from chameleon_tvm.words import first_line

from chameleon_networks.importers.builtin.records import NETWORKS
from chameleon_networks.importers.source_checks import no_torch
from chameleon_networks.importers.torch.messages import torch_messages_held_back
from chameleon_networks.importers.torch.randomness import without_chance, without_dropout
from chameleon_networks.importers.torch.shapes import (
    Export,
    Keywords,
    Shapes,
    check_saved,
    with_shapes,
)
from chameleon_networks.importers.torch.training import evaluated

log = structlog.get_logger()


@attrs.frozen(kw_only=True, eq=False)
class ExampleProgram:
    """A network as torch exports it for its example inputs, and for others.

    Attributes:
        program: the ``torch.export.ExportedProgram`` for those.
        export: exports the network with other inputs.
        owner: the network, for errors.
        saved: whether a file holds the program, and nothing else is there of the network.
    """

    program: Any
    export: Export
    owner: str
    saved: bool = False

    def in_shapes(self, shapes: Shapes) -> Any:
        """The program for inputs of some shapes by name, the others as in the example.

        Raises:
            ConfigError: there are no such inputs, or the network draws random numbers.
        """
        if self.saved:
            check_saved(self.program, shapes, self.owner)
        program = with_shapes(self.program, shapes, self.export, self.owner)
        return without_chance(without_dropout(program))


def builtin_program(name: str, batch: int, dtype: str = "float32") -> ExampleProgram:
    """A built-in network with random weights.

    Args:
        name: a key of ``NETWORKS``.
        batch: samples per inference.
        dtype: of weights and images.
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
    return _exported(network, (example,), {}, name)


def exported(source: str) -> ExampleProgram:
    """The program of a user's function that returns a module and example inputs.

    Args:
        source: ``path.py:function`` or ``package.module:function``.

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
    return program_of(evaluated(network), inputs, source)


def program_of(network: Any, inputs: Any, owner: str) -> ExampleProgram:
    """The program of a torch module for example inputs.

    Args:
        network: the module, which is evaluated.
        inputs: a tensor, a sequence, a mapping, or a pair of a sequence and a mapping.
        owner: the network, for errors.

    Raises:
        ConfigError: torch cannot export it.
    """
    return _exported(network, *_arguments(inputs), owner)


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


def _exported(
    network: Any, positional: tuple[Any, ...], keywords: Keywords, owner: str
) -> ExampleProgram:
    torch = _torch()

    def export(positional: tuple[Any, ...], keywords: Keywords) -> Any:
        try:
            with torch.no_grad(), torch_messages_held_back():
                return torch.export.export(network, positional, keywords)
        except Exception as error:  # whatever torch raises at a network of the user's
            raise ConfigError(
                f"torch cannot export the network of {owner}: {first_line(error)}",
                hint=_unexportable(error),
            ) from error

    return ExampleProgram(program=export(positional, keywords), export=export, owner=owner)


def _arguments(inputs: Any) -> tuple[tuple[Any, ...], Keywords]:
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


def loaded(file: str) -> ExampleProgram:
    """A program saved by ``torch.export.save``.

    Raises:
        ConfigError: the file is none.
    """
    program = _loaded(file)

    def export(positional: tuple[Any, ...], keywords: Keywords) -> Any:
        torch = _torch()
        try:
            with torch.no_grad(), torch_messages_held_back():
                return torch.export.export(program.module(), positional, keywords)
        except Exception as error:  # whatever torch raises at a program of somebody's
            raise ConfigError(
                f"{file} cannot be exported for other shapes: {first_line(error)}",
                hint="Save it with `dynamic_shapes` that allow them.",
            ) from error

    return ExampleProgram(program=program, export=export, owner=file, saved=True)


def _loaded(file: str) -> Any:
    try:
        program = _load(file)
    except Exception as error:  # whatever torch makes of a file of somebody's
        raise ConfigError(
            f"{file} is no program saved by torch.export: {first_line(error)}",
            hint="Save one with torch.export.save(torch.export.export(module, inputs), file).",
        ) from error
    return without_chance(without_dropout(program))


def _load(file: str) -> Any:
    torch = _torch()
    # Torch knows the steps of a quantized program once this is imported.
    with contextlib.suppress(ImportError):
        importlib.import_module("torch.ao.quantization.fx._decomposed")
    return torch.export.load(file)


def keep_program(program: Any, file: str) -> bool:
    """Write a program into a file for other processes of ours.

    Returns:
        Whether torch can write it, which it cannot of all: they export the network themselves then.
    """
    try:
        with torch_messages_held_back():
            _torch().export.save(program, file)
    except Exception as error:  # noqa: BLE001 - whatever torch raises at an object of the user's
        log.info("program_not_kept", problem=first_line(error))
        return False
    return True


def recalled_program(file: str) -> Any:
    """A program that another process has kept; None if this one cannot read it.

    It may hold a type of outputs that only the user's module makes known to torch.
    """
    try:
        with torch_messages_held_back():
            return _load(file)
    except Exception as error:  # noqa: BLE001 - likewise
        log.info("program_not_recalled", problem=first_line(error))
        return None


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
