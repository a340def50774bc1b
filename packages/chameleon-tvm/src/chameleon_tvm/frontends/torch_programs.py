"""Networks of torch as exported programs: built in, of the user's, or saved."""

from __future__ import annotations

import importlib
from typing import Any

from chameleon_core.errors import ConfigError

from chameleon_tvm.networks.records import NETWORKS
from chameleon_tvm.sources import named_object


def builtin_program(name: str, batch: int) -> Any:
    """A built-in network with random weights.

    Args:
        name: a key of ``NETWORKS``.
        batch: samples per inference.
    """
    torch = _torch()
    from chameleon_tvm.networks.weights import initialise  # noqa: PLC0415 - needs torch

    record = NETWORKS[name]
    module, _, function = record.factory.partition(":")
    network = initialise(getattr(importlib.import_module(module), function)())
    shape = (batch, *record.inputs)
    if record.kind == "tokens":
        # The largest id there is says how far random ones may go.
        example = torch.full(shape, record.vocabulary - 1, dtype=torch.int64)
    else:
        example = torch.zeros(shape)
    return torch.export.export(network, (example,))


def exported(source: str) -> Any:
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
    inputs = inputs if isinstance(inputs, tuple | list) else (inputs,)
    try:
        with torch.no_grad():
            return torch.export.export(network.eval(), tuple(inputs))
    except Exception as error:
        raise ConfigError(
            f"torch cannot export the network of {source}: {_words(error)}",
            hint="Try torch.export.export(module, inputs) by hand.",
        ) from error


def loaded(file: str) -> Any:
    """A program saved by ``torch.export.save``.

    Raises:
        ConfigError: the file is none.
    """
    torch = _torch()
    try:
        return torch.export.load(file)
    except Exception as error:
        raise ConfigError(
            f"{file} is no program saved by torch.export: {_words(error)}",
            hint="Save one with torch.export.save(torch.export.export(module, inputs), file).",
        ) from error


def _made(source: str) -> Any:
    function = named_object(source, "model")
    try:
        return function()
    except Exception as error:
        raise ConfigError(
            f"{source} failed: {_words(error)}",
            hint="Call the function by hand to see the whole traceback.",
        ) from error


def _torch() -> Any:
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        raise ConfigError(
            "torch is not installed", hint="Install chameleon-tuner-tvm[networks]."
        ) from error


def _words(error: Exception) -> str:
    text = str(error).strip()
    return f"{type(error).__name__}: {text.splitlines()[0]}" if text else type(error).__name__
