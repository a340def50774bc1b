"""Targets, kernels of functions, and outputs of configurations compared with the reference."""

from functools import cache

import numpy as np
from chameleon_core._errors import ConfigError
from chameleon_core.plugin_api import NoOptions
from chameleon_tvm._building.lowering import compile_function, lower_function
from chameleon_tvm._device.targets import TVMTargets, tvm_target
from chameleon_tvm._quick_tvm import tvm
from chameleon_tvm._spaces.template.options import TemplateOptions
from chameleon_tvm._spaces.template.provider import TemplateSpace
from chameleon_tvm.api import Conv2dSpec
from hypothesis import HealthCheck, assume, settings
from hypothesis import strategies as st


def resolved(text):
    """The canonical form of a target."""
    return TVMTargets(NoOptions()).resolve(text)


NATIVE = resolved("native")
X86 = "llvm -mtriple=x86_64-linux-gnu -mcpu="
ARM = "llvm -mtriple=aarch64-linux-gnu -mcpu="
PROVIDER = TemplateSpace(TemplateOptions())
HALF_PLACE = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "float32": 2.0**-24}
"""Half of the last place of a number, as a share of it at most."""

provider_of = cache(TemplateSpace)


def few(examples):
    """The same few examples every time, each as slow as it is."""
    checks = list(HealthCheck)
    return settings(
        max_examples=examples, deadline=None, derandomize=True, suppress_health_check=checks
    )


EPILOGUES = st.fixed_dictionaries(
    {
        "bias": st.booleans(),
        "residual": st.booleans(),
        "activation": st.sampled_from(["none", "relu", "relu6"]),
    }
)


@st.composite
def convolutions(draw, more):
    """Convolutions of all layouts, strides, dilations and groups, with further fields."""
    groups = draw(st.sampled_from([1, 1, 1, 2, 3]))
    block = draw(st.sampled_from([4, 8, 16]))
    blocked = f"NCHW{block}c"
    layout = draw(st.sampled_from(["NCHW", "NHWC", "NHWC", blocked]))
    output = draw(st.sampled_from(["NCHW", "NHWC", "NHWC", blocked]))
    ic = draw(st.integers(1, 20)) if layout != blocked else block * draw(st.integers(1, 2))
    oc = draw(st.integers(1, 40)) if output != blocked else block * draw(st.integers(1, 3))
    small = st.integers(1, 3)
    size = st.integers(1, 15)
    try:
        return Conv2dSpec(
            input=[draw(st.integers(1, 2)), ic * groups, draw(size), draw(size)],
            filters=oc * groups,
            kernel=(draw(st.integers(1, 4)), draw(st.integers(1, 4))),
            stride=(draw(small), draw(small)),
            padding=tuple(draw(st.integers(0, 2)) for _ in range(4)),
            dilation=(draw(st.integers(1, 2)), draw(st.integers(1, 2))),
            groups=groups,
            layout=layout,
            output_layout=output,
            **draw(more),
        )
    except ConfigError:
        assume(False)


@st.composite
def wide_convolutions(draw, *more):
    """Convolutions of one group with channels enough for tiles of products, and their borders."""
    layout = draw(st.sampled_from(["NCHW", "NHWC", "NHWC", "NCHW16c"]))
    output = draw(st.sampled_from(["NCHW", "NHWC", "NHWC", "NCHW16c"]))
    ic = draw(st.sampled_from([1, 3, 7, 16, 32, 64, 80]))
    oc = draw(st.integers(1, 70))
    small = st.integers(1, 2)
    fields = {key: value for fields in more for key, value in draw(fields).items()}
    try:
        return Conv2dSpec(
            input=[
                draw(small),
                16 * max(1, ic // 16) if layout == "NCHW16c" else ic,
                draw(st.integers(1, 9)),
                draw(st.integers(1, 34)),
            ],
            filters=16 * max(1, oc // 16) if output == "NCHW16c" else oc,
            kernel=(draw(st.integers(1, 3)), draw(st.integers(1, 3))),
            stride=(draw(small), draw(small)),
            padding=tuple(draw(st.integers(0, 2)) for _ in range(4)),
            dilation=(draw(small), draw(small)),
            layout=layout,
            output_layout=output,
            **fields,
        )
    except ConfigError:
        assume(False)


def check(spec, seed=0, count=1, *, target=NATIVE, options=None, chosen=None, rounded=()):
    """Build random legal configurations and the first guess, and compare their outputs.

    ``chosen`` picks others of a space. Outputs of the types in ``rounded`` are rounded once: they
    are the nearest number, but for what float32 sums lose.
    """
    provider = provider_of(options or TemplateOptions())
    builder = provider.builder(spec.task("t", target), threads=2)
    (expected,), tolerance = builder.reference()
    space = builder.space
    drawn = space.sample(count, np.random.default_rng(seed))
    assert len(drawn), "the space has no legal configuration"
    assert space.legal(drawn).all()
    configs = chosen(space, count, seed) if chosen else [*space.first_guesses[:1], *drawn]
    # Small outputs may be all on one side of zero, where one step is much of the largest.
    bytes_ = spec.output_dtype == "uint8"
    largest = 255.0 if bytes_ else max(1e-30, np.abs(expected).max())
    for config in configs:
        (got,) = builder.build(config.tolist()).outputs()
        assert got.shape == expected.shape
        error = np.abs(got - expected)
        assert error.max() <= tolerance * largest, space.decode(config)
        if spec.output_dtype in rounded:
            room = HALF_PLACE[spec.output_dtype] * np.abs(expected) + 1e-5 * largest
            assert (error <= room).all(), space.decode(config)


def require_reference(builder, configs, most=1.0):
    """Build configurations and compare their outputs with the reference: at most that far off."""
    expected, tolerance = builder.reference()
    tolerance = min(tolerance, most)
    for config in configs:
        got = builder.build(np.asarray(config, int).tolist()).outputs()
        for row, other in zip(got, expected, strict=True):
            assert row.shape == other.shape
            assert np.abs(row - other).max() <= tolerance * np.abs(other).max(), config


def naive_convolution(data, weights, spec):
    """Nested loops, so that the reference itself has something to be compared with."""
    sides = zip(spec.pads[: spec.rank], spec.pads[spec.rank :], strict=True)
    padded = np.pad(data, ((0, 0), (0, 0), *sides))
    out = np.zeros(spec.output_shape)
    per_group = spec.output_channels // spec.group_count
    ic = spec.filter_shape[1]
    for n, o, *at in np.ndindex(out.shape):
        for c, *tap in np.ndindex(ic, *spec.kernel_size):
            position = np.multiply(at, spec.strides) + np.multiply(tap, spec.dilations)
            value = padded[(n, o // per_group * ic + c, *position)]
            out[(n, o, *at)] += value * weights[(o, c, *tap)]
    return out


def ran(function, inputs, shape, dtype="float32"):
    """What a function of loops computes on this machine."""
    out = tvm.runtime.tensor(np.zeros(shape, dtype))
    kernel = compile_function(function, tvm_target(NATIVE), plain_loops=True)
    kernel["main"](*map(tvm.runtime.tensor, inputs), out)
    return out.numpy()


def assembly_of(function, target):
    """The code of a function of loops for a CPU."""
    library = lower_function(function, tvm_target(target), plain_loops=True)
    return library.mod.inspect_source("asm")


def first_of(template):
    """The first guess of a template, and its function."""
    space = template.space()
    values = space.decode(space.first_guesses[0])
    return values, template.function(values)


def shapes_of(function):
    """The extents of a function's parameters."""
    return [tuple(int(extent) for extent in parameter.shape) for parameter in function.params]


def require_sound(space, seed=0):
    """First guesses are legal and distinct, and features of drawn configurations finite."""
    assert len(space.first_guesses)
    assert space.legal(space.first_guesses).all()
    assert len(space.distinct(space.first_guesses)) == len(space.first_guesses)
    drawn = space.sample(200, np.random.default_rng(seed))
    features = space.features(drawn)
    assert features.shape == (len(drawn), len(space.feature_names))
    assert np.isfinite(features).all()


def arithmetic_in(template):
    """The arithmetic of a template's direct algorithm."""
    return template.algorithms[0].arithmetics["direct"]
