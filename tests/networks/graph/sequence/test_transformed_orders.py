"""Weights of Winograd's algorithms for a CPU are made of those for another one."""

import numpy as np
import pytest
from chameleon_core.plugin_api import NoOptions
from chameleon_networks._compile.sequence.repacking import repacking_of
from chameleon_networks._delivery.other_kernels import _Packer
from chameleon_system._processor import own_architecture
from chameleon_tvm._device.targets import TVMTargets
from chameleon_tvm._spaces.auto import AutoSpace
from chameleon_tvm._spaces.options import AutoOptions
from chameleon_tvm.api import Conv2dSpec

pytestmark = pytest.mark.skipif(own_architecture() != "x86_64", reason="the targets are x86 CPUs")

TARGETS = [TVMTargets(NoOptions()).resolve(f"llvm -mcpu=x86-64-{level}") for level in ("v4", "v3")]


def packings(algorithm, channels):
    """Packed weights and their orders for two CPUs, of one convolution."""
    spec = Conv2dSpec(input=[1, 16, 12, 12], filters=channels, kernel=3, layout="NHWC")
    space = AutoSpace(AutoOptions(algorithms=("direct", "winograd2", "winograd4")))
    for target in TARGETS:
        task = spec.task("layer", target)
        design = space.design_space(task)
        config = next(
            config
            for config in map(tuple, design.first_guesses.tolist())
            if design.decode(config)["algorithm"] == algorithm
        )
        packer = _Packer(space.builder(task, threads=1))
        rng = np.random.default_rng(0)
        weights = rng.standard_normal(packer.weights.shape, np.float32)
        yield packer.packed(config, weights), packer.order(config)


# The last block of 48 channels may begin inside the one before.
@pytest.mark.parametrize("channels", [32, 48])
@pytest.mark.parametrize("algorithm", ["winograd2", "winograd4"])
def test_the_order_for_another_cpu_is_found(algorithm, channels):
    (source, source_order), (constant, order) = packings(algorithm, channels)
    repacking = repacking_of(source, source_order, constant, order)
    assert np.array_equal(repacking.constant(constant), constant)


def test_filters_that_are_not_transformed_have_another_order():
    (_, winograd), _ = packings("winograd4", 32)
    (_, direct), _ = packings("direct", 32)
    assert winograd.column_places.size == 4 * direct.column_places.size
