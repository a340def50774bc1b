"""Networks of torch in another precision than the one they were written in.

Those in half precision are compiled in float32 on a CPU, and checked in both. No kernel here
computes in half precision on a CPU. Every number of float16 and of bfloat16 is one of float32, so
the weights stay exactly the same. The results can only be closer to the network's meaning than the
framework's own rounding is.

Those in float32 are run in float64 if it matters how much of a difference is rounding.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterable
from typing import Any

from chameleon_core.errors import ConfigError
from chameleon_tvm.types import BFLOAT16, FLOAT16, HALVES


def half_type(program: Any) -> str | None:
    """The type of a program's numbers if that is half precision, or None.

    Args:
        program: a ``torch.export.ExportedProgram``. The coarsest type counts if its numbers are of
            several.
    """
    tensors = [*program.state_dict.values(), *program.constants.values(), *_inputs(program)]
    kinds = {str(getattr(tensor, "dtype", "")).removeprefix("torch.") for tensor in tensors}
    return next((name for name in (BFLOAT16, FLOAT16) if name in kinds), None)


def in_float32(program: Any) -> Any:
    """The same program with every number of half precision in float32, conversions included.

    Args:
        program: a ``torch.export.ExportedProgram``.

    Raises:
        ConfigError: torch cannot export it again.
    """
    torch = importlib.import_module("torch")
    try:
        return _converted(program, {getattr(torch, name) for name in HALVES}, torch.float32)
    except Exception as error:
        raise ConfigError(
            f"the network is in half precision, and torch cannot export it in float32: {error}",
            hint="Return it in float32 (`.float()`), with inputs in float32.",
        ) from error


def in_float64(program: Any) -> Any:
    """The same program with every number of float32 in float64, conversions included.

    Args:
        program: a ``torch.export.ExportedProgram`` in float32.

    Raises:
        Exception: torch cannot export it again; whatever it raises.
    """
    torch = importlib.import_module("torch")
    return _converted(program, {torch.float32}, torch.float64)


def in_half(program: Any, kind: str) -> Any:
    """The same program with every number of float32 in half precision, conversions included.

    Args:
        program: a ``torch.export.ExportedProgram`` in float32.
        kind: a floating type of two bytes.

    Raises:
        Exception: torch cannot export it again; whatever it raises.
    """
    torch = importlib.import_module("torch")
    return _converted(program, {torch.float32}, getattr(torch, kind))


def _converted(program: Any, kinds: set[Any], kind: Any) -> Any:
    """A program with every number of some types in another one.

    Args:
        program: a ``torch.export.ExportedProgram``.
        kinds: types of torch to convert.
        kind: the type of torch to have instead.
    """
    torch = importlib.import_module("torch")
    fx = importlib.import_module("torch.fx")

    def named(value: Any) -> Any:
        return kind if isinstance(value, torch.dtype) and value in kinds else value

    def tensor(value: Any) -> Any:
        of_them = isinstance(value, torch.Tensor) and value.dtype in kinds
        return value.to(kind) if of_them else value

    # Guards, which newer versions of torch have, would insist on inputs of the types before.
    guarded = "check_guards" in inspect.signature(program.module).parameters
    module = program.module(**({"check_guards": False} if guarded else {}))
    for node in module.graph.nodes:
        node.args = fx.node.map_aggregate(node.args, named)
        node.kwargs = fx.node.map_aggregate(node.kwargs, named)
    module.recompile()
    # The parameters are the program's own; `module.to` would convert them in place.
    state = {name: tensor(value) for name, value in module.state_dict().items()}
    module.load_state_dict(state, assign=True)
    module.to(kind)
    for name, value in list(vars(module).items()):
        if isinstance(value, torch.Tensor):
            setattr(module, name, tensor(value))
    tree = importlib.import_module("torch.utils._pytree")
    positional, keywords = tree.tree_map(tensor, program.example_inputs)
    with torch.no_grad():
        return torch.export.export(module, positional, keywords)


def rounded(arrays: Iterable[Any], kind: str) -> list[Any]:
    """Arrays of float32 with every number rounded to a type of half precision.

    Args:
        arrays: NumPy arrays; those of other types stay.
        kind: a floating type of two bytes.
    """
    torch = importlib.import_module("torch")
    return [
        torch.from_numpy(array).to(getattr(torch, kind)).float().numpy()
        if array.dtype == "float32"
        else array
        for array in arrays
    ]


def _inputs(program: Any) -> list[Any]:
    tree = importlib.import_module("torch.utils._pytree")
    leaves: list[Any] = tree.tree_leaves(program.example_inputs)
    return leaves
