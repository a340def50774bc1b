"""Checks that the source of a network exists, without importing TVM, torch or onnx."""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import json
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from chameleon_core.plugin_api import ConfigError, PresetRecord
from chameleon_tvm.api import first_line, named_function

from chameleon_networks._importers.options import NetworkOptions, OnnxOptions, TorchOptions

_PROGRAM = ".pt2"
"""The suffix of a program saved by torch.export."""
_PAIR_LENGTH = 2


def torch_models(folder: Path, file: str) -> Iterator[PresetRecord]:
    """Offer a saved program, or functions of a Python file, to ``chameleon init``."""
    # A function must need no arguments and return a pair; the file is parsed, not run.
    if file.endswith(_PROGRAM):
        shapes: dict[str, list[int]] = {}
        with contextlib.suppress(Exception):  # a run says why it cannot read the file
            shapes = _example_shapes(folder / file)
        yield offered_network(file, {"torch": file}, shapes)
    if file.endswith(".py"):
        try:
            module = ast.parse((folder / file).read_bytes())
        except (OSError, ValueError, SyntaxError):  # not a Python file, and so no model
            return
        if any(_imports_torch(node) for node in ast.walk(module)):
            for node in module.body:
                if isinstance(node, ast.FunctionDef) and _returns_pair(node):
                    source = f"{file}:{node.name}"
                    yield offered_network(source, {"torch": source})


def _example_shapes(file: Path) -> dict[str, list[int]]:
    """The shapes of a saved program's inputs with open axes, as its example inputs had them."""
    with zipfile.ZipFile(file) as archive:
        [name] = [one for one in archive.namelist() if one.endswith("models/model.json")]
        module = json.loads(archive.read(name))["graph_module"]
    shapes = {}
    for spec in module["signature"]["input_specs"]:
        if "as_tensor" in spec.get("user_input", {}).get("arg", ()):
            own = spec["user_input"]["arg"]["as_tensor"]["name"]
            sizes = module["graph"]["tensor_values"][own]["sizes"]
            if any("as_expr" in size for size in sizes):
                shapes[own] = [
                    size.get("as_expr", {}).get("hint", size)["as_int"] for size in sizes
                ]
    return shapes


def offered_network(
    source: str,
    model: Mapping[str, Any],
    shapes: Mapping[str, Sequence[int]] = MappingProxyType({}),
) -> PresetRecord:
    """The pipeline of a network, with extents for the inputs that have open axes."""
    reason = ""
    if shapes:
        reason = (
            "The file leaves axes open. Write your extents, or several for one axis: "
            "{buckets: [1, 8]} or {range: [1, 512]}."
        )
        [(frontend, named)] = model.items()
        model = {frontend: {"source": named, "shapes": dict(shapes)}}
    return PresetRecord(
        name=source,
        summary="a network",
        pipeline={
            "model": model,
            "scheduler": "gradient",
            "baselines": [],
            "budget": {"measurements": 400, "scope": "network"},
        },
        reasons={
            **({"model": reason} if reason else {}),
            "scheduler": "Gives each batch to the operator that saves most latency.",
            "baselines": "Empty, because the network is compared as a whole, not each operator.",
            "budget": "All operators of the network share these limits (`scope: network`).",
        },
    )


def _imports_torch(node: ast.AST) -> bool:
    if isinstance(node, ast.Import):
        return any(alias.name.partition(".")[0] == "torch" for alias in node.names)
    return isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "torch"


def _returns_pair(function: ast.FunctionDef) -> bool:
    parameters = function.args
    required = len(parameters.posonlyargs) + len(parameters.args) - len(parameters.defaults)
    keywords = any(default is None for default in parameters.kw_defaults)
    returned = (node.value for node in ast.walk(function) if isinstance(node, ast.Return))
    pair = any(
        isinstance(value, ast.Tuple) and len(value.elts) == _PAIR_LENGTH for value in returned
    )
    return pair and not required and not keywords


def check_source(options: NetworkOptions) -> None:
    """Check that a network's files, libraries and functions exist, without reading it."""
    if isinstance(options, OnnxOptions):
        if importlib.util.find_spec("onnx") is None:
            raise _not_installed("onnx")
        if not Path(options.source).is_file():
            raise missing_onnx_file(options.source)
        return
    if importlib.util.find_spec("torch") is None:
        raise _not_installed("torch")
    if isinstance(options, TorchOptions):
        _check_torch_source(options.source)


def _check_torch_source(source: str) -> None:
    if not source.endswith(_PROGRAM):
        hint = "Name a function that returns the torch module and its example inputs."
        named_function(source, "model", hint)
    elif not Path(source).is_file():
        hint = "Name a program saved by torch.export, relative to the pipeline."
        raise ConfigError(f"there is no file {source}", hint=hint)


def import_library(name: str) -> Any:
    """Import torch or onnx."""
    try:
        return importlib.import_module(name)
    except (ImportError, OSError) as error:  # OSError, if a shared library cannot be loaded
        if isinstance(error, ModuleNotFoundError) and error.name == name:
            raise _not_installed(name) from error
        raise ConfigError(
            f"{name} cannot be imported: {first_line(error)}",
            hint=f"Run `python -c 'import {name}'` to see the whole error.",
        ) from error


def _not_installed(name: str) -> ConfigError:
    return ConfigError(f"{name} is not installed", hint=f"Install it: pip install {name}.")


def missing_onnx_file(file: str) -> ConfigError:
    """The error for an ONNX network whose file is missing."""
    hint = "Name an ONNX file, relative to the pipeline."
    return ConfigError(f"there is no file {file}", hint=hint)
