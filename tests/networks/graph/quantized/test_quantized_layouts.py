"""Steps of quantization pass through a change of layouts, or it is refused."""

import pytest
from chameleon_networks.graph.chains import chains_of
from chameleon_networks.graph.operators import left_over
from chameleon_networks.graph.prepare import LayoutError, operators_in, prepared, with_steps_passed
from chameleon_networks.graph.relaxed import relax

from ...modules import module_of  # noqa: TID252 - shared by folders
from .test_quantized_networks import small_resnet

op = relax.op


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
