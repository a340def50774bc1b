"""Converts torch networks to another floating-point precision.

If a network is in half precision, Chameleon compiles it to compute in float32. The reason is that
none of Chameleon's kernels for CPUs computes in half precision. The compiled network is checked
against the framework in both precisions. Each number of float16 and bfloat16 is also a number of
float32, so that the weights stay exactly the same. The compiled network's results can only be
closer to the exact results than the framework's results are.

If a network is in float32, a framework also computes it in float64. The difference from the
framework's float32 outputs shows how large rounding errors are.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterable
from typing import Any

from chameleon_core.plugin_api import ConfigError
from chameleon_tvm.api import BFLOAT16, FLOAT16, HALVES


def half_type(program: Any) -> str | None:
    """The half-precision dtype that a program computes in; None if it computes in neither."""
    tree = importlib.import_module("torch.utils._pytree")
    inputs = tree.tree_leaves(program.example_inputs)
    tensors = [*program.state_dict.values(), *program.constants.values(), *inputs]
    kinds = {str(getattr(tensor, "dtype", "")).removeprefix("torch.") for tensor in tensors}
    return next((name for name in (BFLOAT16, FLOAT16) if name in kinds), None)


def in_float32(program: Any) -> Any:
    """Convert all tensors and casts of a torch program from half precision to float32."""
    torch = importlib.import_module("torch")
    try:
        return _converted(program, {getattr(torch, name) for name in HALVES}, torch.float32)
    except Exception as error:
        raise ConfigError(
            f"the network is in half precision, and torch cannot export it in float32: {error}",
            hint="Return it in float32 (`.float()`), with inputs in float32.",
        ) from error


def in_float64(program: Any) -> Any:
    """Convert all tensors and casts of a torch program from float32 to float64."""
    torch = importlib.import_module("torch")
    return _converted(program, {torch.float32}, torch.float64)


def in_half(program: Any, kind: str) -> Any:
    """Convert all tensors and casts of a torch program from float32 to half precision."""
    torch = importlib.import_module("torch")
    return _converted(program, {torch.float32}, getattr(torch, kind))


def _converted(program: Any, kinds: set[Any], kind: Any) -> Any:
    """Convert all tensors of some dtypes in a program to another dtype, and export it again."""
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
    """Round float32 arrays to half precision and back; other arrays stay."""
    torch = importlib.import_module("torch")
    return [
        torch.from_numpy(array).to(getattr(torch, kind)).float().numpy()
        if array.dtype == "float32"
        else array
        for array in arrays
    ]
