"""Intel's oneDNN, called through PyTorch: the vendor's kernels on a CPU.

Only the builder imports PyTorch, in a worker process of its own. Making the baseline and asking it
what it supports needs neither PyTorch nor TVM.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
from collections.abc import Iterator, Sequence

from chameleon_core.plugins import NoOptions
from chameleon_core.stages import Baseline, Builder
from chameleon_core.task import Task

VARIANTS: dict[str, tuple[str, ...]] = {
    # "packed" keeps the weights in the layout oneDNN likes best, as Inductor does when it
    # freezes a network; it is usually the fastest, but not for every shape.
    # torch has no channels last of one spatial axis, and packs no weights for it.
    "conv1d": ("ncw",),
    "conv2d": ("nchw", "nhwc", "packed"),
    "conv3d": ("ncdhw", "ndhwc", "packed"),
    "depthwise_conv1d": ("ncw",),
    "depthwise_conv2d": ("nchw", "nhwc", "packed"),
    "depthwise_conv3d": ("ncdhw", "ndhwc", "packed"),
    "dense": ("linear", "packed"),
    "batch_matmul": ("bmm",),
}
"""Ways to compute each kind of operator (``Task.operator``)."""

EPILOGUE = frozenset({"bias", "residual", "activation"})
"""Arguments that only operators with an epilogue have (``operators.specs.FusedSpec``)."""


class OneDNNBaseline(Baseline):
    """oneDNN in each of its layouts, whatever layout the task has: the best one counts."""

    needs_modules = ("torch",)

    def __init__(self, options: NoOptions) -> None:
        del options

    def supports(self, task: Task) -> bool:
        """Whether it is a plain convolution or product of float32, without an epilogue.

        Its kernels for int8 saturate sums of two products on CPUs without VNNI, as its manual says
        ("Nuances of int8 computations"). Their outputs would be refused there.
        """
        return (
            task.operator in VARIANTS
            and task.arguments.get("dtype", "float32") == "float32"
            and EPILOGUE.isdisjoint(task.arguments)
            and kind_of(task) == "llvm"
            and importlib.util.find_spec("torch") is not None
        )

    def variants(self, task: Task) -> Sequence[str]:
        return VARIANTS[task.operator]

    def builder(self, task: Task, variant: str, *, threads: int) -> Builder:
        with _every_core():
            from chameleon_runners.baselines.torch_builder import TorchBuilder  # noqa: PLC0415

            return TorchBuilder(task, variant, threads=threads)


@contextlib.contextmanager
def _every_core() -> Iterator[None]:
    """Let this process use every core for a while.

    OpenMP looks at the affinity of the thread that loads it and starts its pool. If the main
    thread is already bound to one core, all threads would share it and run at half the speed.
    """
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, range(os.cpu_count() or 1))
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def kind_of(task: Task) -> str:
    """The kind of a task's canonical target; empty for one that is not TVM's."""
    try:
        return str(json.loads(task.target)["kind"])
    except (ValueError, KeyError, TypeError):
        return ""
