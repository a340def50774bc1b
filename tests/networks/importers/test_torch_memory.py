"""A network gets an explicit state if its outputs depend on earlier calls, and only then."""

import pytest
import torch
from chameleon_networks._importers.torch.inference import check_program
from marks import full
from torch import nn


class Cached(nn.Module):
    """A function of an input and a buffer."""

    def __init__(self, function):
        super().__init__()
        self.register_buffer("cache", torch.zeros(2, 4))
        self._function = function

    def forward(self, x):
        return self._function(x, self.cache)


def _unpacked(x, cache):
    hidden, _ = cache
    hidden.add_(x)
    return hidden * 2


def _chunks(x, cache):
    cache.chunk(2)[1].add_(x)
    return cache.sum(0)


def _part_of_a_result(x, cache):
    y = x.clone()
    y[:2] += cache[0, :2]
    cache.add_(1)
    return y


def _given_output(x, cache):
    torch.add(cache, 1.0, out=cache)
    return cache.sum(0) * x


@pytest.mark.parametrize("function", [_unpacked, _chunks, _part_of_a_result, _given_output])
def test_state_becomes_an_input_and_an_output(function):
    network, x = Cached(function), torch.ones(4)
    run = check_program(torch.export.export(network, (x,))).module()
    state = {"cache": torch.zeros(2, 4)}
    for _ in range(3):
        answer, state = run(x, new_state=state)
        assert torch.equal(answer, network(x))
    assert torch.equal(state["cache"], network.cache)


def _counted(x, cache):
    cache.add_(1)
    y = x * 2
    torch._foreach_add_([y], 1.0)
    return y


@pytest.mark.parametrize("decomposed", [False, True])
@pytest.mark.parametrize(
    ("network", "shape"),
    [
        (Cached(_counted), (4,)),
        full(nn.BatchNorm1d(4), (5, 4)),
        full(nn.InstanceNorm1d(3, track_running_stats=True), (2, 3, 4)),
    ],
)
def test_state_that_no_output_reads_is_allowed(network, shape, decomposed):
    program = torch.export.export(network.train(), (torch.rand(shape),))
    if decomposed:
        program = program.run_decompositions()
    assert check_program(program) is program
