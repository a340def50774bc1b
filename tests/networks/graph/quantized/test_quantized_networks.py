"""Quantized networks are computed in integers, mean what they say, and change their layout."""

import numpy as np
import pytest
from chameleon_networks.graph.chains import chains_of
from chameleon_networks.graph.operators import left_over
from chameleon_networks.graph.prepare import LayoutError, operators_in, prepared, with_steps_passed
from chameleon_networks.graph.relaxed import relax

from ...modules import module_of  # noqa: TID252 - shared by folders
from .pieces import Affine, convolution, dense, evaluated

op = relax.op
IMAGE = Affine(scale=2.0**-5, zero_point=121)
FIRST = Affine(scale=2.0**-3, zero_point=0)
SECOND = Affine(scale=2.0**-2, zero_point=7)


def small_resnet(emit, x):
    """Convolution, pooling, a residual block, a mean, a matrix product."""
    rng = np.random.default_rng(0)
    x = IMAGE.pair(emit, x)
    x = emit(op.nn.relu(convolution(emit, x, 16, 3, IMAGE.scale, rng=rng, padding=1)))
    x = FIRST.pair(emit, x)
    x = FIRST.pair(emit, emit(op.nn.max_pool2d(x, (3, 3), (2, 2), (1, 1, 1, 1))))
    sums = convolution(emit, x, 16, 3, FIRST.scale, rng=rng, padding=1)
    x = SECOND.pair(emit, emit(op.nn.relu(emit(op.add(sums, x)))))
    x = FIRST.pair(emit, emit(op.mean(x, [2, 3])))
    return SECOND.pair(emit, dense(emit, x, 10, FIRST.scale, rng=rng))


def test_a_small_resnet_is_in_integers():
    module = module_of(small_resnet, ((1, 3, 12, 12), "float32"))
    for layout in ("NCHW", "NHWC"):
        network = prepared(module, layout)
        chains = chains_of(network)
        assert [chain.spec.kind for chain in chains] == ["conv2d", "conv2d", "dense"]
        assert {chain.spec.dtype for chain in chains} == {"int8"}
        assert {chain.spec.output_dtype for chain in chains} == {"uint8"}
        assert [chain.spec.residual for chain in chains] == [False, True, False]
        left = left_over(network, chains)
        left.pop("permute_dims", None)
        assert left == {"quantize": 2, "nn.max_pool2d": 1, "mean": 1, "dequantize": 2}


@pytest.mark.parametrize("guesses", [False, True])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_a_small_resnet_is_right_bit_by_bit(deliver, layout, *, guesses):
    module = module_of(small_resnet, ((1, 3, 12, 12), "float32"))
    network = deliver(module, layout=layout, guesses=guesses)
    image = np.random.default_rng(1).standard_normal((1, 3, 12, 12)).astype(np.float32)
    np.testing.assert_array_equal(network.run(image), evaluated(module, image))


# -- layouts ---------------------------------------------------------------------------------


def test_no_layout_is_changed_between_quantized_convolutions():
    network = prepared(module_of(small_resnet, ((1, 3, 12, 12), "float32")), "NHWC")
    # The image alone comes in another layout.
    assert left_over(network, chains_of(network))["permute_dims"] == 1


def test_steps_are_the_same_afterwards():
    module = module_of(small_resnet, ((1, 3, 12, 12), "float32"))
    copy = with_steps_passed(module, lambda step: step)
    assert operators_in(copy) == operators_in(module)


def test_a_change_that_loses_a_step_is_refused():
    module = module_of(small_resnet, ((1, 3, 12, 12), "float32"))
    others = module_of(lambda emit, x: emit(op.nn.relu(x)), ((1, 3), "float32"))

    def lost(_):
        return others

    with pytest.raises(LayoutError, match="lost 12 of 12 steps"):
        with_steps_passed(module, lost)
