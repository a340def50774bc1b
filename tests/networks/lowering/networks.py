"""Networks compiled without a tuner, as they are before anything is tuned, and compared."""

import tempfile
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from chameleon_networks._importers.torch.lowering.importer import torch_graph
from chameleon_networks._importers.torch.programs import export_module
from torch import nn
from torch.utils import _pytree as tree

from ..graph.sequence.conftest import deliverer  # noqa: TID252 - its helpers

TOLERANCE = 1e-4
AT_ONCE = 13
"""Cases compiled as one network: importing and compiling take half a second at least."""


def batches(families):
    """Parts of families of cases, by name, as parameters of a test: each for one network."""
    return [
        pytest.param(dict(islice(cases.items(), start, start + AT_ONCE)), id=f"{name}-{start}")
        for name, cases in families.items()
        for start in range(0, len(cases), AT_ONCE)
    ]


class Many(nn.Module):
    """Several networks beside each other, so that one compilation does for all.

    Args:
        networks: the networks.
        counts: how many of the inputs each takes.
    """

    def __init__(self, networks, counts):
        super().__init__()
        self.networks = nn.ModuleList(networks)
        self.counts = counts

    def forward(self, *inputs):
        outputs, start = [], 0
        for network, count in zip(self.networks, self.counts, strict=True):
            outputs.append(network(*inputs[start : start + count]))
            start += count
        return outputs


def arrays(value):
    """The tensors in what a network returns, as arrays."""
    return [leaf.numpy() for leaf in tree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def answers(module, inputs, layout="NHWC"):
    """Outputs of an imported network, compiled without a tuned kernel."""
    with tempfile.TemporaryDirectory() as folder:
        outputs = deliverer(Path(folder))(module, layout=layout).run(*inputs)
    return outputs if isinstance(outputs, list) else [outputs]


def wrong(cases, layout="NHWC"):
    """What is wrong with each of some networks of torch; empty where nothing is.

    Args:
        cases: functions that return a module and its inputs, by name.
        layout: they are compiled in.
    """
    torch.manual_seed(0)
    pairs = {name: case() for name, case in cases.items()}
    for network, _ in pairs.values():
        network.eval()
    together = Many([n for n, _ in pairs.values()], [len(args) for _, args in pairs.values()])
    inputs = tuple(leaf for _, args in pairs.values() for leaf in args)
    with torch.no_grad():
        expected = [arrays(network(*args)) for network, args in pairs.values()]
        module = torch_graph(export_module(together.eval(), inputs, "cases").program).module
    got = iter(answers(module, [array.numpy() for array in inputs], layout))
    faults = {}
    for name, wanted in zip(pairs, expected, strict=True):
        problems = [difference(next(got), array) for array in wanted]
        if any(problems):
            faults[name] = "; ".join(filter(None, problems))
    assert next(got, None) is None, "there are more outputs than torch has"
    return faults


def difference(got, wanted):
    """What is wrong with an array; nothing where it is as wanted."""
    if got.shape != wanted.shape or got.dtype != wanted.dtype:
        return f"{got.dtype}{got.shape} instead of {wanted.dtype}{wanted.shape}"
    off = np.isnan(got) != np.isnan(wanted) if wanted.dtype.kind == "f" else got != wanted
    if wanted.dtype.kind == "f":
        scale = np.abs(wanted[np.isfinite(wanted)]).max(initial=1.0)
        close = np.isclose(got, wanted, rtol=TOLERANCE, atol=TOLERANCE * scale, equal_nan=True)
        off |= ~close
    return f"{off.sum()} of {off.size} numbers are off" if off.any() else ""
