"""Graphs, stand-ins of networks, and what the log says about them."""

from unittest.mock import Mock

import numpy as np
import torch
from chameleon_networks._backends import torch_graphs as backend
from torch import nn

DOUBLED = torch.fx.symbolic_trace(lambda x: x * 2.0)
DOUBLE = torch.fx.symbolic_trace(lambda x: (x * 2.0,))
PRODUCT = torch.fx.symbolic_trace(lambda w, x: (w * x,))


class Network:
    """A delivered network of a function of tensors; ``seen`` has what it was called with."""

    def __init__(self, function=lambda x: (x * 2.0,)):
        self.function, self.seen = function, []

    def arrays(self, inputs):
        return [value.numpy() for value in inputs]

    def run(self, arrays):
        self.seen.append(arrays)
        answer = self.function(*map(torch.from_numpy, arrays))
        return [np.array(value.numpy(), order="C") for value in answer]

    def close(self):
        pass


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Linear(8, 16), nn.BatchNorm1d(16)
        self.register_buffer("shift", torch.linspace(-1.0, 1.0, 16))

    def forward(self, x):
        y = self.norm(self.first(x)) + self.shift
        return {"sum": y.sum(-1), "signs": y > 0}


def stays(logs):
    return [log["reason"] for log in logs if log["event"] == "graph_computed_by_torch"]


def unseen(function):
    """A function that torch does not trace into, with the name of others."""

    @torch.compiler.allow_in_graph
    def unseen(x):
        return function(x)

    return unseen


def loads(monkeypatch, **networks):
    """Networks are loaded by the names of their folders; the result counts how often."""
    load = Mock(side_effect=lambda folder, threads: networks[folder.parent.name])
    monkeypatch.setattr(backend, "load", load)
    return load
