"""Networks of torch as exported programs: built in, of the user's, or saved."""

from __future__ import annotations

import importlib
import warnings
from typing import Any

from chameleon_core.errors import ConfigError

from chameleon_tvm.frontends.words import first_line
from chameleon_tvm.networks.records import NETWORKS
from chameleon_tvm.sources import named_object


def builtin_program(name: str, batch: int, dtype: str = "float32") -> Any:
    """A built-in network with random weights.

    Args:
        name: a key of ``NETWORKS``.
        batch: samples per inference.
        dtype: of weights and images.
    """
    torch = _torch()
    from chameleon_tvm.networks.weights import initialise  # noqa: PLC0415 - needs torch

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
            f"torch cannot export the network of {source}: {first_line(error)}",
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
            f"{file} is no program saved by torch.export: {first_line(error)}",
            hint="Save one with torch.export.save(torch.export.export(module, inputs), file).",
        ) from error


def torch_module(program: Any) -> tuple[Any, dict[str, str]]:
    """An exported program as a Relax module with constant weights.

    Returns:
        The module, and for the name of each variable in it the place that it is from.

    Raises:
        ConfigError: TVM cannot read it; names the operator to blame and its place.
    """
    from chameleon_tvm.graph.relaxed import relax  # noqa: PLC0415, F401 - TVM without torch first

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from chameleon_tvm.frontends.torch_lowering.importing import imported  # noqa: PLC0415

        try:
            return imported(program)
        except ConfigError:
            raise
        except Exception as error:
            raise ConfigError(
                f"the compiler cannot read the network: {first_line(error)}",
                hint="Try torch.export.export(...).run_decompositions() by hand.",
            ) from error


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
        raise ConfigError(
            "torch is not installed", hint="Install chameleon-tuner-tvm[networks]."
        ) from error

