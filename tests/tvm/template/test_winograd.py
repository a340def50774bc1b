"""Winograd's convolution: transforms, programs, and the algorithm as a knob."""

from functools import partial

import attrs
import computing
import numpy as np
import pytest
from chameleon_tvm._device.cpus.features import host_features
from chameleon_tvm._late_tvm import tirx
from chameleon_tvm._spaces.auto import AutoSpace
from chameleon_tvm._spaces.loops.trees import find_nodes
from chameleon_tvm._spaces.options import AutoOptions
from chameleon_tvm._spaces.template.options import TemplateOptions
from chameleon_tvm._spaces.template.provider import TemplateSpace, template_of
from chameleon_tvm._spaces.template.winograd_transforms import expected_error, transforms
from chameleon_tvm.api import Conv2dSpec
from computing import NATIVE, few, first_of, require_sound, resolved, shapes_of
from hypothesis import given
from hypothesis import strategies as st

ZEN4 = '{"keys": ["cpu"], "kind": "llvm", "mcpu": "znver4", "num-cores": 2}'
HASWELL = '{"keys": ["cpu"], "kind": "llvm", "mcpu": "haswell", "num-cores": 4}'
ALL = ("direct", "winograd2", "winograd4")
check = partial(computing.check, options=TemplateOptions(algorithms=ALL[1:]))
R5 = Conv2dSpec(input=[1, 128, 28, 28], filters=128, kernel=3, padding=1, layout="NHWC")
FEW = few(10)


def space_of(spec, *algorithms, target=ZEN4, **options):
    options = TemplateOptions(algorithms=algorithms, **options)
    return TemplateSpace(options).design_space(spec.task("t", target))


@pytest.mark.parametrize("out", [2, 4])
@given(seed=st.integers(0, 1000))
def test_transforms_compute_a_convolution(out, seed):
    rng = np.random.default_rng(seed)
    form = transforms(out)
    data, weights = rng.normal(size=(form.size, form.size)), rng.normal(size=(3, 3))
    direct = [
        [(data[i : i + 3, j : j + 3] * weights).sum() for j in range(out)] for i in range(out)
    ]
    product = (form.weights @ weights @ form.weights.T) * (form.data @ data @ form.data.T)
    np.testing.assert_allclose(form.output @ product @ form.output.T, direct, atol=1e-10)


def test_larger_tiles_and_more_channels_lose_more():
    assert expected_error(2, 64) < expected_error(4, 64) < expected_error(4, 512) < 1e-4
    assert expected_error(2, 512) < 1e-5


@pytest.mark.parametrize("out", [2, 4])
@pytest.mark.parametrize("mean", [0, 1, 30, 1000])
def test_filters_without_a_sum_lose_no_more_than_rounded_inputs(out, mean):
    """The check of a network allows twice the change that a relative one of 2^-22 causes."""
    rng, form = np.random.default_rng(0), transforms(out)
    tiles = (rng.uniform(-1, 1, (64, 16, form.size, form.size)) + mean).astype(np.float32)
    sobel = np.outer([1, 2, 1], [1, 0, -1])
    filters = rng.standard_normal((8, 16, 1, 1)) * sobel

    def computed(data, kind):
        b, a = form.data.astype(kind), form.output.astype(kind)
        weights = (form.weights @ filters @ form.weights.T).astype(kind)
        return a @ np.einsum("tcij,ocij->toij", b @ data.astype(kind) @ b.T, weights) @ a.T

    exact = computed(tiles, np.float64)
    moved = computed(tiles * (1 + 2.0**-22 * rng.choice([-1, 1], tiles.shape)), np.float64)
    error, allowed = (np.abs(one - exact).max() for one in (computed(tiles, np.float32), moved))
    assert error <= 2 * allowed + expected_error(out, 16) * np.abs(exact).max()


@st.composite
def convolutions(draw):
    return Conv2dSpec(
        input=[
            draw(st.integers(1, 2)),
            draw(st.sampled_from([16, 32, 48])),
            draw(st.integers(3, 16)),
            draw(st.integers(4, 13)),
        ],
        filters=draw(st.sampled_from([16, 48, 80])),
        kernel=3,
        padding=draw(st.tuples(*[st.integers(0, 2)] * 4)),
        layout=draw(st.sampled_from(["NHWC", "NCHW"])),
        output_layout="NHWC",
        bias=draw(st.booleans()),
        residual=draw(st.booleans()),
        activation=draw(st.sampled_from(["none", "relu", "relu6"])),
    )


@pytest.mark.full
@FEW
@given(convolutions(), st.integers(0, 1000))
def test_programs_compute_the_reference(spec, seed):
    check(spec, seed)


@pytest.mark.skipif("avx2" not in host_features(), reason="this CPU lacks AVX2")
def test_vectors_may_be_of_eight():
    spec = Conv2dSpec(
        input=[1, 24, 9, 11], filters=40, kernel=3, padding=1, layout="NHWC", bias=True
    )
    check(spec, target=resolved("llvm -mcpu=haswell -num-cores=2"))


def test_the_position_of_a_tile_is_computed_once():
    space = TemplateSpace(TemplateOptions(algorithms=("winograd4",)))
    config = space.design_space(R5.task("t", ZEN4)).first_guesses[0].tolist()
    function = space.builder(R5.task("t", ZEN4), threads=2).program(config).function
    divisions = find_nodes(function.body, (tirx.FloorDiv, tirx.FloorMod))
    # A tile of outputs alone reads 36 products and writes 16 numbers.
    assert 0 < len(divisions) < 16


def test_errors_are_what_they_are_expected_to_be():
    task = attrs.evolve(R5, input=[1, 128, 12, 12], filters=32).task("t", NATIVE)
    for algorithm, out in (("winograd2", 2), ("winograd4", 4)):
        provider = TemplateSpace(TemplateOptions(algorithms=(algorithm,)))
        builder = provider.builder(task, threads=2)
        (expected,), _ = builder.reference()
        (got,) = builder.build(provider.design_space(task).first_guesses[0].tolist()).outputs()
        assert np.abs(got - expected).max() / np.abs(expected).max() <= expected_error(out, 128)


def test_the_default_space_has_all_algorithms_and_the_direct_one_unchanged():
    default = TemplateSpace(TemplateOptions()).design_space(R5.task("t", ZEN4))
    assert default.fingerprint == space_of(R5, *ALL).fingerprint
    plain = space_of(R5, "direct")
    assert "algorithm" not in plain.index
    joined = space_of(R5, *ALL)
    direct = joined.first_guesses[joined.first_guesses[:, 0] == 0]
    width = len(plain.knobs)
    np.testing.assert_array_equal(direct[:, 1 : 1 + width], plain.first_guesses)
    assert not direct[:, 1 + width :].any()


def test_the_joined_space_is_listed_where_its_parts_are():
    joined, direct, winograd = space_of(R5, *ALL), space_of(R5, "direct"), space_of(R5, *ALL[1:])
    listed = joined.all_legal
    assert len(listed) == len(direct.all_legal) + len(winograd.all_legal)
    assert len(joined.distinct(listed)) == len(listed)
    assert joined.legal(listed).all()
    assert len(joined.sample(10 * len(listed), np.random.default_rng(0))) == len(listed)


def test_legal_configurations_of_the_joined_space_are_legal_ones_of_the_part():
    joined, plain = space_of(R5, *ALL), space_of(R5, "direct")
    drawn = joined.sample(500, np.random.default_rng(0))
    assert set(drawn[:, 0]) == {0, 1, 2}
    assert plain.legal(drawn[drawn[:, 0] == 0][:, 1 : 1 + len(plain.knobs)]).all()
    winograd = space_of(R5, *ALL[1:])
    others = drawn[drawn[:, 0] > 0]
    own = np.column_stack([others[:, 0] - 1, others[:, 1 + len(plain.knobs) :]])
    assert winograd.legal(own).all()
    features = joined.features(drawn)
    assert np.isfinite(features).all()
    theirs = [name.startswith("winograd_") for name in joined.feature_names]
    analytical = np.array(theirs) & (np.arange(len(theirs)) >= sum(_widths(joined)))
    assert not features[drawn[:, 0] == 0][:, analytical].any()


def _widths(space):
    return [len(knob.feature_names) for knob in space.knobs]


@pytest.mark.parametrize("target", [ZEN4, HASWELL])
def test_guesses_are_legal_distinct_and_name_every_algorithm_allowed(target):
    space = space_of(R5, *ALL, target=target)
    require_sound(space)
    assert {0, 2} <= set(space.first_guesses[:, 0].tolist())


def test_three_of_four_first_guesses_are_winograds():
    space = space_of(R5, *ALL)
    direct = [space.decode(config)["algorithm"] == "direct" for config in space.first_guesses[:10]]
    assert direct == [False, True, *[False] * 3, True, *[False] * 3, True]


def test_inputs_too_many_for_the_caches_are_not_shared_by_a_first_guess():
    def shares(spec):
        space = space_of(spec, "winograd4")
        return [
            space.decode(config)["winograd_inputs"] == "shared"
            for config in space.first_guesses[:8]
        ]

    small = Conv2dSpec(input=[1, 256, 14, 14], filters=256, kernel=3, padding=1, layout="NHWC")
    large = Conv2dSpec(input=[1, 64, 224, 224], filters=64, kernel=3, padding=1, layout="NHWC")
    assert any(shares(small))
    assert not any(shares(large))


@pytest.mark.parametrize(
    "changes",
    [
        {"stride": 2},
        {"kernel": 5},
        {"dilation": 2},
        {"groups": 2},
        {"layout": "NCHW"},
        {"output_layout": "NCHW"},
        {"filters": 100},
    ],
)
def test_where_winograd_does_not_apply_the_direct_space_is_all_there_is(changes):
    spec = attrs.evolve(R5, **{"output_layout": "", **changes})
    for chosen in (ALL, ALL[1:]):
        assert space_of(spec, *chosen).fingerprint == space_of(spec, "direct").fingerprint


def test_a_tolerance_forbids_algorithms_that_lose_more():
    assert set(space_of(R5, *ALL, max_error=1e-3).knobs[0].options) == set(ALL)
    assert set(space_of(R5, *ALL, max_error=5e-6).knobs[0].options) == set(ALL[:2])
    assert space_of(R5, *ALL, max_error=1e-9).fingerprint == space_of(R5, "direct").fingerprint


def test_a_network_packs_transformed_weights_and_the_bias():
    task = attrs.evolve(R5, bias=True).task("t", NATIVE)
    template = template_of(task, TemplateOptions(algorithms=("winograd4",)))
    values, function = first_of(template)
    weights, bias = np.ones((128, 128, 3, 3), np.float32), np.arange(128, dtype=np.float32)
    packed = template.pack(values, [weights, bias])
    assert [array.shape for array in packed] == shapes_of(function)[1:3]
    assert packed[0].size * 4 >= weights.size * 16
    np.testing.assert_array_equal(packed[1], bias)


@pytest.mark.parametrize(
    ("algorithms", "said"), [((), "Length"), (("fft",), "fft"), (("direct", "direct"), "twice")]
)
def test_wrong_algorithms_are_refused(algorithms, said):
    with pytest.raises(ValueError, match=said):
        TemplateOptions(algorithms=algorithms)


def test_auto_passes_its_options_on():
    auto = AutoSpace(AutoOptions(algorithms=ALL)).design_space(R5.task("t", ZEN4))
    assert auto.fingerprint == space_of(R5, *ALL).fingerprint
