"""Dense layers of float32 whose weights are stored in less, where the options allow it."""

import attrs
import numpy as np
import pytest
from chameleon_tvm._spaces.template.algorithms import rounding_error
from chameleon_tvm._spaces.template.options import TemplateOptions
from chameleon_tvm._spaces.template.provider import TemplateSpace
from chameleon_tvm.api import Conv2dSpec, DenseSpec
from computing import NATIVE, resolved

HASWELL = resolved("llvm -mtriple=x86_64-linux-gnu -mcpu=haswell")
SPEC = DenseSpec(input=[1, 512], units=96, bias=True, activation="relu")
ALL = ("direct", "winograd2", "winograd4", "bfloat16_weights", "float16_weights")


def algorithms(options, spec=SPEC, target=HASWELL):
    space = TemplateSpace(options).design_space(spec.task("t", target))
    return space.knobs[0].options if space.knobs[0].name == "algorithm" else ()


def test_nothing_changes_unless_they_are_asked_for_and_the_bound_allows_them():
    plain = TemplateSpace(TemplateOptions()).design_space(SPEC.task("t", HASWELL))
    bound = TemplateSpace(TemplateOptions(algorithms=ALL)).design_space(SPEC.task("t", HASWELL))
    assert plain.fingerprint == bound.fingerprint
    assert algorithms(TemplateOptions(max_error=None)) == ()
    assert algorithms(TemplateOptions(algorithms=ALL, max_error=2e-4)) == (
        "direct",
        "float16_weights",
    )
    cancelling = attrs.evolve(SPEC, cancellation=8)
    assert algorithms(TemplateOptions(algorithms=ALL, max_error=2e-4), cancelling) == ()
    both = ("direct", "bfloat16_weights", "float16_weights")
    assert algorithms(TemplateOptions(algorithms=ALL, max_error=None)) == both
    whole = DenseSpec(input=[1, 512], units=96, dtype="int8")
    assert algorithms(TemplateOptions(algorithms=ALL, max_error=None), whole) == ()


def test_a_cpu_without_the_conversion_stores_no_float16():
    target = resolved("llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64")
    options = TemplateOptions(algorithms=ALL, max_error=None)
    assert algorithms(options, target=target) == ("direct", "bfloat16_weights")


@pytest.mark.parametrize("algorithm", ["direct", "bfloat16_weights", "float16_weights"])
def test_outputs_lose_what_is_expected(algorithm):
    provider = TemplateSpace(TemplateOptions(algorithms=ALL, max_error=None))
    builder = provider.builder(SPEC.task("t", NATIVE), threads=1)
    (expected,), tolerance = builder.reference()
    space = builder.space
    if algorithm not in space.knobs[0].options:
        pytest.skip("this CPU has no such conversion")
    index = space.knobs[0].options.index(algorithm)
    configs = [*space.first_guesses, *space.sample(40, np.random.default_rng(0))]
    chosen = [config for config in configs if config[0] == index][:3]
    assert len(chosen) == 3
    for config in chosen:
        (got,) = builder.build(config.tolist()).outputs()
        error = np.abs(got - expected).max() / np.abs(expected).max()
        assert error <= tolerance
        if algorithm == "direct":
            assert error <= 1e-5
        else:
            expectation = rounding_error(algorithm.removesuffix("_weights"))
            assert 0.2 * expectation < error < 4.0 * expectation


def test_small_weights_take_half_the_bytes():
    provider = TemplateSpace(TemplateOptions(algorithms=ALL, max_error=None))
    builder = provider.builder(SPEC.task("t", NATIVE), threads=1)
    sizes = {}
    for config in builder.space.first_guesses:
        kind = builder.space.decode(config)["algorithm"]
        sizes[kind] = builder.program(config.tolist()).inputs[1].itemsize
    assert sizes["direct"] == 4
    assert sizes["bfloat16_weights"] == 2


def test_convolutions_have_the_algorithms_they_had():
    spec = Conv2dSpec(input=[1, 16, 8, 8], filters=32, kernel=3, padding=1, layout="NHWC")
    wanted = TemplateOptions(algorithms=ALL, max_error=None)
    assert algorithms(wanted, spec) == ("direct", "winograd2", "winograd4")
