"""Weights that a 16-bit dtype holds exactly, as in most checkpoints of language models."""

import numpy as np
import pytest
from chameleon_networks._graph.fold_scales import fold_scales
from chameleon_networks._graph.fusion import find_fusions
from chameleon_networks._graph.fusion_groups import with_fastest_specs
from chameleon_networks._graph.prepare import prepare_module
from chameleon_networks._graph.relax_utils import relax
from chameleon_tvm._types import STORAGE
from marks import full

from ..modules import expected, module_of, operators_of  # noqa: TID252 - shared by folders
from .sequence.conftest import TARGET, deliverer

op = relax.op
RNG = np.random.default_rng(0)
DENSE, FILTERS = (
    RNG.standard_normal(shape).astype(np.float32) for shape in ((40, 48), (8, 4, 3, 3))
)


def product(weights, scale=None):
    def build(emit, x):
        value = emit(op.matmul(x, relax.const(weights)))
        return value if scale is None else emit(op.multiply(value, relax.const(scale)))

    return module_of(build, (20, 40))


def convolution(weights, **more):
    return module_of(
        lambda emit, x: emit(op.nn.conv2d(x, relax.const(weights), **more)), (1, 4, 9, 9)
    )


def exact_weights(module):
    module = prepare_module(module, "NCHW")
    (fusion,) = with_fastest_specs(find_fusions(module), TARGET)
    return fusion.spec.exact_weights


def test_the_narrowest_dtype_that_holds_all_weights():
    for make, weights in ((product, DENSE), (convolution, FILTERS)):
        assert exact_weights(make(weights)) == ""
        for dtype in ("bfloat16", "float16"):
            rounded = STORAGE[dtype].rounded(weights)
            used = dtype == "bfloat16" or make is product
            assert exact_weights(make(rounded)) == (dtype if used else "")
            rounded.flat[-1] = 1.0 + 2.0**-12
            assert exact_weights(make(rounded)) == ""
            rounded.flat[-1] = np.inf
            assert exact_weights(make(rounded)) == ""


@pytest.mark.parametrize(
    ("scale", "folded"), [(0.125, True), ([0.5, 4.0] * 24, True), (0.3, False)]
)
def test_scales_that_would_spoil_the_weights_stay(scale, folded):
    weights, scale = STORAGE["bfloat16"].rounded(DENSE), np.asarray(scale, np.float32)
    module = product(weights, scale)
    result = fold_scales(module)
    assert ("multiply" not in operators_of(result)) == folded
    x = RNG.standard_normal((20, 40)).astype(np.float32)
    assert np.array_equal(expected(result, x), expected(module, x))
    assert "multiply" not in operators_of(fold_scales(product(DENSE, scale)))


@pytest.mark.parametrize("dtype", ["bfloat16", full("float16")])
def test_delivered_networks_store_the_weights_exactly(tmp_path, dtype):
    weights = STORAGE[dtype].rounded(DENSE)
    deliver = deliverer(tmp_path)
    x = RNG.standard_normal((20, 40)).astype(np.float32)
    wanted = x.astype(np.float64) @ weights
    for seed in range(4):
        network = deliver(product(weights), seed=seed)
        assert np.abs(network.run(x) - wanted).max() <= 1e-5 * np.abs(wanted).max()
