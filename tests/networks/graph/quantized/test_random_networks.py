"""Random quantized networks: every tensor that is quantized is what NumPy says, bit by bit."""

import numpy as np
import pytest
from chameleon_networks.graph.chains import chains_of
from chameleon_networks.graph.moves import shape_of
from chameleon_networks.graph.prepare import prepared
from chameleon_networks.graph.relaxed import relax
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ...modules import module_of  # noqa: TID252 - shared by folders
from .pieces import Affine, convolution, dense, evaluated

op = relax.op

PARAMETERS = st.builds(
    Affine, scale=st.sampled_from([2.0**-4, 2.0**-3, 2.0**-2]), zero_point=st.integers(0, 255)
) | st.builds(
    Affine,
    scale=st.sampled_from([2.0**-4, 2.0**-3]),
    zero_point=st.integers(-128, 127),
    dtype=st.just("int8"),
)
ACTIVATIONS = st.sampled_from(["none", "relu", "clip", "leaky"])
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["conv", "depthwise", "residual", "pool", "concat", "slice", "relu"]),
        PARAMETERS,
        ACTIVATIONS,
    ),
    min_size=1,
    max_size=5,
)


def activated(emit, x, name):
    if name == "relu":
        return emit(op.nn.relu(x))
    if name == "clip":
        return emit(op.clip(x, 0.0, 6.0))
    return emit(op.nn.leakyrelu(x, 0.25)) if name == "leaky" else x


def network(emit, x, steps, start):
    """A network of some steps, each of which is quantized; it returns all their results."""
    rng = np.random.default_rng(len(steps))
    values = [(start.pair(emit, x), start)]
    for kind, parameters, activation in steps:
        x, wanted = values[-1]
        channels = shape_of(x)[1]
        if kind in {"conv", "depthwise", "residual"}:
            groups = channels if kind == "depthwise" else 1
            filters = 12 if kind == "conv" else channels
            x = convolution(emit, x, filters, 3, wanted.scale, rng=rng, groups=groups, padding=1)
            others = [value for value, _ in values if shape_of(value) == shape_of(x)]
            if kind == "residual" and others:
                x = emit(op.add(x, others[0]))
            x, wanted = activated(emit, x, activation), parameters
        elif kind == "pool":
            x = emit(op.nn.max_pool2d(x, (3, 3), (1, 1), (1, 1, 1, 1)))
        elif kind == "concat":
            x = emit(op.concat([x, x], axis=1))
        elif kind == "slice":
            x = emit(op.strided_slice(x, [1], [0], [max(1, channels // 2)]))
        else:
            x = activated(emit, x, activation)
        values.append((wanted.pair(emit, x), wanted))
    last, known = values[-1]
    flat = emit(op.reshape(last, [1, -1]))
    out = known.pair(emit, dense(emit, flat, 9, known.scale, rng=rng))
    return tuple([value for value, _ in values] + [out])


@settings(
    max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    steps=STEPS, start=PARAMETERS, seed=st.integers(0, 99), layout=st.sampled_from(["NCHW", "NHWC"])
)
@pytest.mark.parametrize("guesses", [False, True])
def test_random_networks(deliver, steps, start, seed, layout, *, guesses):
    module = module_of(lambda emit, x: network(emit, x, steps, start), ((1, 6, 5, 7), "float32"))
    image = np.random.default_rng(seed).normal(0, 4, (1, 6, 5, 7)).astype(np.float32)
    outputs = deliver(module, layout=layout, guesses=guesses).run(image)
    for got, wanted in zip(outputs, evaluated(module, image), strict=True):
        np.testing.assert_array_equal(got, wanted)
    chains = chains_of(prepared(module, layout))
    assert {chain.spec.dtype for chain in chains} == {"int8"}
