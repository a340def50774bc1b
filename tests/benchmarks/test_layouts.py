"""Layouts of a network's edges: the graph, and the labels with the least cost."""

import itertools
import math

import layout_graph
import layout_labels as labels
import layout_seconds
import layouts
import numpy as np
import pytest
from chameleon_core.errors import ChameleonError
from chameleon_networks.compile.prepared_networks import prepared_network
from chameleon_networks.importers.options import TorchOptions
from chameleon_networks.importers.sources import TorchNetwork
from hypothesis import given
from hypothesis import strategies as st

BRANCHED = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, 2, 1)
        self.left = nn.Conv2d(16, 16, 3, 1, 1)
        self.right = nn.Conv2d(16, 16, 1)
        self.last = nn.Conv2d(32, 8, 1)

    def forward(self, image):
        x = self.stem(image).relu()
        y = x + self.left(x)
        pooled = nn.functional.max_pool2d(x, 3, 1, 1)
        return self.last(torch.cat([y, self.right(pooled)], 1)).mean((2, 3))

def make():
    return Net(), (torch.zeros(1, 3, 16, 16),)
"""
LAYOUTS = ("NHWC", "NCHW", "NCHW8c")


@pytest.fixture(name="graph")
def _graph(tmp_path):
    file = tmp_path / "branched.py"
    file.write_text(BRANCHED)
    network = TorchNetwork(TorchOptions(source=f"{file}:make"))
    module, chains = prepared_network(network, "NCHW")
    names = [str(number) for number in range(len(chains))]
    return layout_graph.graph_of(module, chains, names, LAYOUTS)


@st.composite
def _problems(draw):
    count = draw(st.integers(1, 5))
    sizes = {f"v{at}": draw(st.integers(1, 3)) for at in range(count)}
    scopes = draw(
        st.lists(
            st.lists(st.sampled_from(sorted(sizes)), max_size=3, unique=True),
            min_size=1,
            max_size=7,
        )
    )
    cost = st.one_of(st.integers(0, 9).map(float), st.just(math.inf))
    return sizes, [
        (tuple(scope), [draw(cost) for _ in range(math.prod(sizes[var] for var in scope))])
        for scope in scopes
    ]


@given(problem=_problems())
def test_no_labels_cost_less(problem):
    sizes, tables = problem
    factors = [
        labels.Factor(variables=scope, table=np.array(table).reshape([sizes[var] for var in scope]))
        for scope, table in tables
    ]

    def cost(chosen):
        return sum(var.table[tuple(chosen[name] for name in var.variables)] for var in factors)

    total, chosen = labels.least(sizes, factors)
    every = [
        dict(zip(sizes, at, strict=True))
        for at in itertools.product(*(range(size) for size in sizes.values()))
    ]
    assert total == min(cost(var) for var in every)
    assert cost(chosen) == total


def test_a_graph_that_is_too_wide_is_refused(monkeypatch):
    monkeypatch.setattr(labels, "LARGEST_TABLE", 8)
    names = ("a", "b", "c")
    factor = labels.Factor(variables=names, table=np.zeros((3, 3, 3)))
    with pytest.raises(ChameleonError, match="depend on one another"):
        labels.least(dict.fromkeys(names, 3), [factor])


def test_the_graph_has_what_lies_between_convolutions(graph):
    assert len(graph.convolutions) == 4
    stem, left, *_ = graph.convolutions
    assert graph.inputs == {stem.read}
    # Three channels are in no block of eight.
    assert graph.allowed[stem.read] == ("NHWC", "NCHW")
    assert graph.allowed[stem.written] == LAYOUTS
    joined = {(var.written, var.read) for var in graph.tensors}
    # The residual is read in the layout that is written.
    assert {(stem.written, left.read), (stem.written, left.written)} <= joined
    pool = next(
        read for written, read in joined if written == stem.written and read[0] not in "0123"
    )
    concatenation = next(read for written, read in joined if written == left.written)
    assert graph.allowed[pool] == graph.allowed[concatenation] == LAYOUTS
    assert (pool, graph.convolutions[2].read) in joined
    assert (graph.convolutions[2].written, concatenation) in joined


def test_a_layout_that_one_convolution_is_faster_in_is_worth_a_cheap_move(graph):
    seconds = {
        var.spec: dict.fromkeys(itertools.product(LAYOUTS, repeat=2), 10.0)
        for var in graph.convolutions
    }
    stem, _, right, last = graph.convolutions
    del right
    for pair in list(seconds[stem.spec]):
        if pair[0] == "NCHW8c":
            del seconds[stem.spec][pair]
    seconds[last.spec]["NCHW", "NCHW"] = 4.0
    for price, gain in ((1.0, 5.0), (3.0, 3.0), (7.0, 0.0)):
        moves = dict.fromkeys(graph.moves(), price)
        # In NHWC the others are faster, so that one move alone pays.
        for var in graph.convolutions[:-1]:
            seconds[var.spec]["NHWC", "NHWC"] = seconds[var.spec]["NCHW", "NHWC"] = 7.0
        result = layouts.compared(graph, seconds, moves)
        assert result["seconds"]["NHWC"] == 31.0
        assert result["seconds"]["NCHW"] == 34.0
        assert result["best"] == "NHWC"
        assert result["seconds"]["per edge"] == 31.0 - gain
        assert result["gain"] == pytest.approx(gain / 31.0)
        assert result["moved"] == len(result["differ"]) == (gain > 0)
        assert result["seconds"]["bound"] == 25.0


def test_kernels_of_one_name_are_one_and_hopeless_ones_get_few_turns():
    class Kernel:
        def __init__(self, *seconds):
            self.seconds, self.calls = seconds, 0

        def time(self, number):
            self.calls += 1
            return self.seconds[self.calls % len(self.seconds)]

    fast, noisy, hopeless = Kernel(1.0), Kernel(0.9, 1.2), Kernel(3.0)
    named = [("a", fast), ("b", noisy), ("a", hopeless)]
    assert layout_seconds.least_seconds(named, 10) == {"a": 1.0, "b": 0.9}
    assert fast.calls == noisy.calls == hopeless.calls + 10 - layout_seconds.FIRST_ROUNDS
