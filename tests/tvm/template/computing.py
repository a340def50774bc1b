"""Builds configurations of templates and compares their outputs with the reference."""

from functools import cache

import numpy as np
from chameleon_core.errors import ConfigError
from chameleon_core.plugins import NoOptions
from chameleon_tvm.baselines.unscheduled import UnscheduledBuilder
from chameleon_tvm.device.targets import TVMTargets
from chameleon_tvm.operators.specs import Conv2dSpec
from chameleon_tvm.spaces.template.options import TemplateOptions
from chameleon_tvm.spaces.template.provider import TemplateSpace
from hypothesis import HealthCheck, assume, settings
from hypothesis import strategies as st

NATIVE = TVMTargets(NoOptions()).resolve("native")
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


def check_unscheduled(spec):
    """The function without a schedule computes the reference."""
    builder = UnscheduledBuilder(spec.task("t", NATIVE), threads=1)
    (expected,), tolerance = builder.reference()
    (got,) = builder.build([]).outputs()
    assert np.abs(got - expected).max() <= tolerance * np.abs(expected).max()
