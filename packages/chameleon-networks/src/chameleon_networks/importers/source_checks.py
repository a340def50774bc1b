"""Whether what a network is read from is there, found out without TVM, torch or onnx."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from chameleon_core.errors import ConfigError
from chameleon_tvm.sources import named_object

from chameleon_networks.importers.options import NetworkOptions, OnnxOptions, TorchOptions


def check_source(options: NetworkOptions) -> None:
    """See that the library, the file and the function are there; nothing is read or called.

    Raises:
        ConfigError: one of them is not.
    """
    if isinstance(options, OnnxOptions):
        if importlib.util.find_spec("onnx") is None:
            raise no_onnx()
        if not Path(options.source).is_file():
            raise no_onnx_file(options.source)
        return
    if importlib.util.find_spec("torch") is None:
        raise no_torch()
    if isinstance(options, TorchOptions):
        _check_torch_source(options.source)


def _check_torch_source(source: str) -> None:
    if not source.endswith(".pt2"):
        if not callable(named_object(source, "model")):
            hint = "Name a function that returns the torch module and its example inputs."
            raise ConfigError(f"model: {source} is no function", hint=hint)
    elif not Path(source).is_file():
        hint = "Name a program saved by torch.export, relative to the pipeline."
        raise ConfigError(f"there is no file {source}", hint=hint)


def no_torch() -> ConfigError:
    """The error of a network of torch where there is no torch."""
    return ConfigError("torch is not installed", hint="Install it: pip install torch.")


def no_onnx() -> ConfigError:
    """The error of a network in ONNX where its package is missing."""
    hint = "Install it: pip install onnx."
    return ConfigError("the package onnx is not installed", hint=hint)


def no_onnx_file(file: str) -> ConfigError:
    """The error of a network whose file is missing."""
    hint = "Name an ONNX file, relative to the pipeline."
    return ConfigError(f"there is no file {file}", hint=hint)
