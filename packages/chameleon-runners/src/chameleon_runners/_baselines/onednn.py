"""The baseline ``onednn``: kernels of Intel's oneDNN for CPUs, called through PyTorch.

Only the builder imports PyTorch, in a separate worker process.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
from collections.abc import Iterator, Sequence

from chameleon_core.plugin_api import Baseline, Builder, NoOptions, Task

VARIANTS: dict[str, tuple[str, ...]] = {
    # "packed" keeps the weights in oneDNN's own layout, as Inductor does for a frozen network.
    # PyTorch has neither channels last nor packed weights for one spatial axis.
    "conv1d": ("ncw",),
    "conv2d": ("nchw", "nhwc", "packed"),
    "conv3d": ("ncdhw", "ndhwc", "packed"),
    "depthwise_conv1d": ("ncw",),
    "depthwise_conv2d": ("nchw", "nhwc", "packed"),
    "depthwise_conv3d": ("ncdhw", "ndhwc", "packed"),
    "dense": ("linear", "packed"),
    "batch_matmul": ("bmm",),
    # PyTorch computes both products of a block with oneDNN or MKL, without storing all scores.
    "attention": ("sdpa",),
}
"""The variants that oneDNN has for each kind of operator (``Task.operator``)."""

EPILOGUE = frozenset({"bias", "residual", "activation"})
"""Arguments that only operators with an epilogue have (``operators.specs.FusedSpec``)."""
_TENSORS = "query", "key", "value"
_OF_ATTENTION = frozenset({*_TENSORS, "scale", "causal", "dtype"})
"""Arguments of attention that PyTorch's function computes without a copy or a mask."""

_DEFAULTS: tuple[object, ...] = ("BHSD", False, (), [])
_MOST_CORES = 8192
"""The largest number of cores that a kernel of Linux for x86 supports."""


class OneDNNBaseline(Baseline):
    """Kernels of Intel's oneDNN as a baseline, of which the fastest layout counts."""

    def __init__(self, options: NoOptions) -> None:
        del options

    def supports(self, task: Task) -> bool:
        """Whether it is a float32 convolution, product or attention on a CPU, without epilogue.

        Without VNNI, oneDNN's int8 kernels saturate sums of two products, which Chameleon's check
        rejects (oneDNN's manual, "Nuances of int8 computations").
        """
        return (
            task.operator in VARIANTS
            and task.arguments.get("dtype", "float32") == "float32"
            and EPILOGUE.isdisjoint(task.arguments)
            and (task.operator != "attention" or _is_plain_attention(task))
            and kind_of(task.target) == "llvm"
            and importlib.util.find_spec("torch") is not None
        )

    def variants(self, task: Task) -> Sequence[str]:
        return VARIANTS[task.operator]

    def builder(self, task: Task, variant: str, *, threads: int) -> Builder:
        with _all_cores():
            from chameleon_runners._baselines.torch_builder import TorchBuilder  # noqa: PLC0415

            return TorchBuilder(task, variant, threads=threads)


def _is_plain_attention(task: Task) -> bool:
    """Whether attention has no mask, equal heads, and contiguous tensors of [batch, heads, ...]."""
    arguments = task.arguments
    others = set(arguments) - _OF_ATTENTION
    heads = {tuple(arguments[name])[1] for name in _TENSORS}
    return len(heads) == 1 and all(arguments[name] in _DEFAULTS for name in others)


@contextlib.contextmanager
def _all_cores() -> Iterator[None]:
    """A context in which this process may use every core.

    OpenMP reads the affinity of the thread that starts its thread pool, and would bind all threads
    to that core.
    """
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    # Linux ignores ids of missing cores. In a container, ids may exceed the number of cores.
    os.sched_setaffinity(0, range(_MOST_CORES))
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def kind_of(target: str | None) -> str:
    """The kind of a canonical target, such as ``llvm``; empty if TVM has no such target."""
    try:
        return str(json.loads(target or "")["kind"])
    except (ValueError, KeyError, TypeError):
        return ""
