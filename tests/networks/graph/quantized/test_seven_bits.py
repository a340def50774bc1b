"""Networks that come quantized and whose weights happen to have seven bits."""

import numpy as np
import pytest
from chameleon_core.plugins import NoOptions
from chameleon_core.stages import Winner
from chameleon_networks.compile.kernels import Kernels
from chameleon_networks.graph.chains import chains_of
from chameleon_networks.graph.narrow_weights import fastest
from chameleon_networks.graph.prepare import prepared
from chameleon_networks.graph.relaxed import relax
from chameleon_tvm.device.targets import TVMTargets

from ...modules import module_of  # noqa: TID252 - shared by folders
from .pieces import Affine, convolution, dense, evaluated

op = relax.op
DATA = Affine(scale=2.0**-4, zero_point=100)
OUT = Affine(scale=2.0**-2, zero_point=9)


def cpu(name):
    return TVMTargets(NoOptions()).resolve(f"llvm -mtriple=x86_64-linux-gnu -mcpu={name}")


def module(largest):
    """Convolutions, one of them depthwise, and a product, with weights up to a magnitude."""
    rng = np.random.default_rng(0)

    def build(emit, x):
        more = {"rng": rng, "largest": largest}
        x = DATA.pair(emit, x)
        x = DATA.pair(emit, convolution(emit, x, 24, 3, DATA.scale, padding=1, **more))
        x = DATA.pair(emit, convolution(emit, x, 24, 3, DATA.scale, padding=1, groups=24, **more))
        x = DATA.pair(emit, convolution(emit, x, 16, 1, DATA.scale, **more))
        x = DATA.pair(emit, emit(op.mean(x, [2, 3])))
        return OUT.pair(emit, dense(emit, x, 10, DATA.scale, **more))

    return module_of(build, ((1, 3, 10, 10), "float32"))


def chains(largest):
    return chains_of(prepared(module(largest), "NHWC"))


def dtypes(chains, target):
    return [chain.spec.dtype for chain in fastest(chains, target)]


def test_what_weights_allow_is_used_where_it_is_faster():
    small = chains(64)
    assert [chain.spec.kind for chain in small] == [
        *("conv2d", "depthwise_conv2d", "conv2d", "dense")
    ]
    assert dtypes(small, cpu("haswell")) == ["int7", "int8", "int7", "int7"]
    assert dtypes(small, cpu("znver4")) == ["int8"] * 4
    assert dtypes(chains(127), cpu("haswell")) == ["int8"] * 4
    for beyond in (-65, 65, -128):
        small[0].constants.weights[0, 0, 0, 0] = beyond
        assert dtypes(small, cpu("haswell")) == ["int8", "int8", "int7", "int7"]


def test_kernels_that_were_tuned_for_all_weights_still_serve():
    chain, target = chains(64)[2], cpu("haswell")
    own, wide = fastest([chain], target)[0].spec.task("own", target), chain.spec.task("w", target)
    assert own.key != wide.key

    def kernels(*tasks):
        winners = {task.key: Winner(task=task, config=(0,)) for task in tasks}
        return Kernels(winners, None, target)

    for known, chosen in (((own, wide), own), ((wide,), wide), ((own,), own)):
        assert kernels(*known).task_of(chain) == chosen
        assert kernels(*known).like(chain).task == chosen
    assert kernels().like(chain) is None


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_outputs_are_equal_bit_by_bit(deliver, layout):
    source = module(64)
    network = deliver(source, layout=layout, guesses=True)
    image = 8 * np.random.default_rng(1).standard_normal((1, 3, 10, 10)).astype(np.float32)
    output = network.run(image)
    assert len(np.unique(output)) > 3
    np.testing.assert_array_equal(output, evaluated(source, image))
