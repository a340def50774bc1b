"""Quantized networks, random ones too, are computed in integers and mean what they say."""

import numpy as np
import pytest
from chameleon_core.plugin_api import Delivery, NoOptions
from chameleon_networks._compile.kernels import Kernels
from chameleon_networks._graph.fusion import find_fusions
from chameleon_networks._graph.fusion_groups import with_fastest_specs
from chameleon_networks._graph.operators import count_unfused_operators
from chameleon_networks._graph.prepare import (
    LayoutError,
    convert_quantized_layout,
    operator_names,
    prepare_module,
)
from chameleon_networks._graph.relax_utils import relax, shape_of
from chameleon_tvm._device.targets import TVMTargets
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from marks import full

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
        network = prepare_module(module, layout)
        fusions = find_fusions(network)
        assert [fusion.spec.kind for fusion in fusions] == ["conv2d", "conv2d", "dense"]
        assert {fusion.spec.dtype for fusion in fusions} == {"int8"}
        assert {fusion.spec.output_dtype for fusion in fusions} == {"uint8"}
        assert [fusion.spec.residual for fusion in fusions] == [False, True, False]
        left = count_unfused_operators(network, fusions)
        # No layout is changed between convolutions: the image alone comes in another one.
        assert left.pop("permute_dims", 0) == (layout == "NHWC")
        assert left == {"quantize": 2, "nn.max_pool2d": 1, "mean": 1, "dequantize": 2}


@pytest.mark.parametrize(
    ("layout", "guesses"),
    [("NHWC", True), full("NCHW", True), full("NHWC", False), full("NCHW", False)],
)
def test_a_small_resnet_is_right_bit_by_bit(deliver, layout, *, guesses):
    module = module_of(small_resnet, ((1, 3, 12, 12), "float32"))
    network = deliver(module, layout=layout, guesses=guesses)
    image = np.random.default_rng(1).standard_normal((1, 3, 12, 12)).astype(np.float32)
    np.testing.assert_array_equal(network.run(image), evaluated(module, image))


# -- layouts ---------------------------------------------------------------------------------


def test_steps_are_the_same_afterwards():
    module = module_of(small_resnet, ((1, 3, 12, 12), "float32"))
    copy = convert_quantized_layout(module, lambda step: step)
    assert operator_names(copy) == operator_names(module)


def test_a_change_that_loses_a_step_is_refused():
    module = module_of(small_resnet, ((1, 3, 12, 12), "float32"))
    others = module_of(lambda emit, x: emit(op.nn.relu(x)), ((1, 3), "float32"))

    def lost(_):
        return others

    with pytest.raises(LayoutError, match="lost 12 of 12 steps"):
        convert_quantized_layout(module, lost)


# -- random networks -------------------------------------------------------------------------------


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


@pytest.mark.full
@settings(
    max_examples=3, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
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
    fusions = find_fusions(prepare_module(module, layout))
    assert {fusion.spec.dtype for fusion in fusions} == {"int8"}


# -- weights of seven bits -------------------------------------------------------------------------


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


def fusions(largest):
    return find_fusions(prepare_module(module(largest), "NHWC"))


def dtypes(fusions, target):
    return [fusion.spec.dtype for fusion in with_fastest_specs(fusions, target)]


def test_what_weights_allow_is_used_where_it_is_faster():
    small = fusions(64)
    assert [fusion.spec.kind for fusion in small] == [
        *("conv2d", "depthwise_conv2d", "conv2d", "dense")
    ]
    assert dtypes(small, cpu("haswell")) == ["int7", "int8", "int7", "int7"]
    assert dtypes(small, cpu("znver4")) == ["int8"] * 4
    assert dtypes(fusions(127), cpu("haswell")) == ["int8"] * 4
    for beyond in (-65, 65, -128):
        small[0].constants.weights[0, 0, 0, 0] = beyond
        assert dtypes(small, cpu("haswell")) == ["int8", "int8", "int7", "int7"]


def test_kernels_that_were_tuned_for_all_weights_still_serve():
    fusion, target = fusions(64)[2], cpu("haswell")
    own, wide = (
        with_fastest_specs([fusion], target)[0].spec.task("own", target),
        fusion.spec.task("w", target),
    )
    assert own.key != wide.key

    def kernels(*tasks):
        winners = {task.key: Delivery.Winner(task=task, config=(0,)) for task in tasks}
        return Kernels(winners, None, target)

    for known, chosen in (((own, wide), own), ((wide,), wide), ((own,), own)):
        assert kernels(*known).task_of(fusion) == chosen
        assert kernels(*known).like(fusion).task == chosen
    assert kernels().like(fusion) is None


@pytest.mark.parametrize("layout", [full("NCHW"), "NHWC"])
def test_outputs_are_equal_bit_by_bit(deliver, layout):
    source = module(64)
    network = deliver(source, layout=layout, guesses=True)
    image = 8 * np.random.default_rng(1).standard_normal((1, 3, 10, 10)).astype(np.float32)
    output = network.run(image)
    assert len(np.unique(output)) > 3
    np.testing.assert_array_equal(output, evaluated(source, image))
