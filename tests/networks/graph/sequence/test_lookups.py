"""Channel shuffles move nothing where kernels can look channels up, and numbers stay the same."""

import numpy as np
import pytest
from chameleon_networks._graph.relax_utils import relax
from marks import full

from ...modules import module_of  # noqa: TID252 - shared by folders
from .image_networks import check, conv, correct, shuffle, unit

op = relax.op
MOVES = ("concat", "split", "slice", "shuffle", "fused_concat", "fused_split")


def _moves(network):
    return [name for name in network.kernels if name.startswith(MOVES)]


@pytest.mark.parametrize(("batch", "channels"), [(1, 20), full(2, 58)])
def test_a_stage_of_units_moves_nothing(deliver, channels, batch):
    def build(emit, x):
        x = shuffle(emit, emit(op.concat([conv(emit, x, channels)] * 2, axis=1)), 2)
        for _ in range(4):
            x = unit(emit, x)
        return conv(emit, x, 24)

    # Kernels that split numbers for tiles read vectors of neighbouring channels.
    options = {"layout": "NHWC", "guesses": True, "algorithms": ["direct"]}
    network = correct(deliver, build, (batch, 8, 6, 7), **options)
    assert _moves(network) == []
    looked_up = [call for call in network.compiled.executable.sequence.calls if call.gathers]
    assert len(looked_up) == 5, "the first convolution of each unit, and the last one"


@pytest.mark.full
def test_who_cannot_look_up_gets_one_copy(deliver):
    def build(emit, x):
        x = emit(op.concat([conv(emit, x, 12), conv(emit, x, 20, 3)], axis=1))
        x = unit(emit, shuffle(emit, x, 2))
        pooled = emit(op.nn.max_pool2d(x, (3, 3), (2, 2), (1, 1)))
        return conv(emit, pooled, 8), conv(emit, x, 8, 3, 8)

    network = correct(deliver, build, (1, 8, 6, 6), layout="NHWC", guesses=True)
    assert _moves(network) == ["shuffle_of_some_of_1x6x6x32_float32"]


@pytest.mark.full
def test_callers_own_what_they_pass_and_get(deliver):
    def build(emit, x):
        new = conv(emit, x, 4)
        mixed = shuffle(emit, emit(op.concat([x, new], axis=1)), 4)
        return new, mixed, conv(emit, mixed, 5)

    module = module_of(build, ((2, 4, 5, 5), "float32"))
    for layout in ("NCHW", "NHWC"):
        network = deliver(module, layout=layout, guesses=True)
        for seed in (0, 1):
            x = np.random.default_rng(seed).standard_normal((2, 4, 5, 5), np.float32)
            check(network, module, x)


def test_what_would_be_looked_up_too_often_is_moved(deliver):
    def build(emit, x):
        return conv(emit, shuffle(emit, conv(emit, x, 16), 2), 512)

    network = correct(deliver, build, (1, 8, 6, 6), layout="NHWC", guesses=True)
    assert sum("shuffle" in name for name in network.kernels) == 1
    assert "_of_some_of_" not in "".join(network.kernels)
    assert not any(call.gathers for call in network.compiled.executable.sequence.calls)


def test_untuned_networks_shuffle_with_a_kernel(deliver):
    def build(emit, x):
        return conv(emit, unit(emit, conv(emit, x, 16)), 8)

    correct(deliver, build, (1, 8, 6, 6), layout="NHWC")
