"""PyTorch's own samples of its modules: ``module_db`` in float32, in evaluation mode.

    python benchmarks/module_cases.py --together 8

Everything else is as in ``torch_cases.py``: the constructor's arguments are constants, and tensors
among the arguments of the call are inputs.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import torch
from torch_cases import OpInfoCases, Sampled, run


class ModuleCases(OpInfoCases):
    """Samples of modules; arguments are those of ``OpInfoCases``."""

    @cached_property
    def entries(self) -> dict[str, Any]:
        from torch.testing._internal import common_modules  # noqa: PLC0415 - takes seconds

        entries = (entry for entry in common_modules.module_db if torch.float32 in entry.dtypes)
        return {entry.name: entry for entry in entries}

    def cases(self) -> Mapping[str, str]:
        return dict.fromkeys(super().cases(), "modules")

    def network(self, case: str) -> Sampled:
        name, _, number = case.rpartition("/")
        sample = self._samples(name)[int(number)]
        layer, call = sample.constructor_input, sample.forward_input
        torch.manual_seed(0)
        module = self.entries[name].module_cls(*layer.args, **layer.kwargs).eval()
        return Sampled(module, call.args, call.kwargs, self.inputs)

    def samples_of(self, name: str) -> list[Any]:
        entry = self.entries[name]
        options = {"device": "cpu", "dtype": torch.float32, "requires_grad": False}
        samples = entry.module_inputs_func(entry, training=False, **options)
        return [sample for sample in samples if sample.forward_input is not None]


if __name__ == "__main__":
    sys.exit(run("module_cases:ModuleCases"))
