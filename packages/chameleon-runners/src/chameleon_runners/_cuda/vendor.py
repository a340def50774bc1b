"""Kernels of vendors' libraries, such as cuDNN's, on devices of this machine.

A device's process gets only the description of a kernel, and calls the library through PyTorch.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
from chameleon_core.plugin_api import Arrays, Builder, Kernel, NoOptions, Task

from chameleon_runners._baselines.onednn import OneDNNBaseline, kind_of

RECIPE = "vendor.json"


@attrs.frozen(kw_only=True)
class VendorRecipe:
    """The description of a vendor library's kernel, from which a device's process makes it.

    Attributes:
        task: the task as JSON values.
        threads: the number of threads of a kernel on a CPU. GPUs ignore it.
    """

    task: dict[str, Any]
    variant: str
    threads: int = 1

    def write(self, artifact: Path) -> None:
        """Write the recipe into an artifact folder."""
        (artifact / RECIPE).write_text(json.dumps(attrs.asdict(self)), encoding="utf-8")


def read_vendor_recipe(artifact: Path) -> VendorRecipe | None:
    """Read the recipe of a vendor's kernel from an exported folder; None if it has none."""
    path = artifact / RECIPE
    if not path.exists():
        return None
    return VendorRecipe(**json.loads(path.read_text(encoding="utf-8")))


class VendorBuilder(Builder):
    """Exports recipes of a vendor library's kernels; needs neither GPU nor PyTorch."""

    def __init__(self, task: Task, variant: str, *, threads: int) -> None:
        self._task = task
        self._recipe = VendorRecipe(task=task.to_json(), variant=variant, threads=threads)

    def build(self, config: Sequence[int]) -> Kernel:
        del config
        return vendor_kernel(self._recipe, kind_of(self._task.target), 0)

    def export(self, config: Sequence[int], artifact: Path) -> None:
        del config
        self._recipe.write(artifact)

    def reference(self) -> tuple[Arrays, float]:
        from chameleon_tvm.api import operator_of  # noqa: PLC0415 - only a worker needs TVM

        operator = operator_of(self._task)
        return operator.reference(operator.inputs()), operator.tolerance


def vendor_kernel(recipe: VendorRecipe, kind: str, index: int) -> Kernel:
    """Make a kernel of a vendor's library, such as cuDNN's, on a device of this machine."""
    # PyTorch is not imported yet, because it binds its threads to the cores of this thread.
    if importlib.util.find_spec("torch") is None:
        raise RuntimeError(
            "the vendor's library is called through PyTorch, which is not installed here"
        )
    task = Task(**recipe.task)
    if kind == "cuda":
        from chameleon_runners._baselines.cudnn_kernel import cudnn_kernel  # noqa: PLC0415

        return cudnn_kernel(task, recipe.variant, index)
    baseline = OneDNNBaseline(NoOptions())
    return baseline.builder(task, recipe.variant, threads=recipe.threads).build(())
