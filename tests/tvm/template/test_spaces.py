"""Design spaces of the templates: legality, features, first guesses, and where they apply."""

import json
import math

import attrs
import numpy as np
import pytest
from chameleon_core._errors import ConfigError
from chameleon_core._task import Task
from chameleon_core.plugin_api import Choice, DesignSpace
from chameleon_testing._conformance_cases import grid
from chameleon_tvm import api as specs
from chameleon_tvm._device.targets import target_info
from chameleon_tvm._operators import convolution_specs
from chameleon_tvm._spaces.auto import AutoSpace
from chameleon_tvm._spaces.options import AutoOptions
from chameleon_tvm._spaces.template.base import TemplateBuilder
from chameleon_tvm._spaces.template.convolution import ConvolutionTemplate, geometry_of
from chameleon_tvm._spaces.template.direct_tiling import DirectTiling, tile_sizes
from chameleon_tvm._spaces.template.estimates import evenly_spaced, first_guesses
from chameleon_tvm._spaces.template.geometry import tap_patterns, valid_taps
from chameleon_tvm._spaces.template.options import TemplateOptions
from chameleon_tvm._spaces.template.provider import TemplateSpace
from computing import assembly_of, require_sound, resolved
from hypothesis import given
from hypothesis import strategies as st

ZEN4 = '{"keys": ["cpu"], "kind": "llvm", "mcpu": "znver4", "num-cores": 2}'
HASWELL = '{"keys": ["cpu"], "kind": "llvm", "mcpu": "haswell", "num-cores": 4}'
CUDA = resolved("nvidia/nvidia-a100")
VULKAN = '{"keys": ["vulkan", "gpu"], "kind": "vulkan"}'
R8 = specs.Conv2dSpec(input=[1, 256, 14, 14], filters=256, kernel=3, padding=1, layout="NHWC")
CONV1D = convolution_specs.Conv1dSpec(
    input=[1, 64, 100], filters=64, kernel=9, padding=4, layout="NWC"
)
STRIDED = specs.Conv2dSpec(input=[1, 256, 14, 14], filters=512, kernel=1, stride=2)
SHAPES = [
    R8,
    CONV1D,
    convolution_specs.Conv3dSpec(
        input=[1, 16, 8, 28, 28], filters=32, kernel=3, padding=1, layout="NDHWC"
    ),
    specs.Conv2dSpec(input=[1, 128, 28, 28], filters=128, kernel=3, groups=32, layout="NHWC"),
    specs.DepthwiseConv2dSpec(input=[1, 4, 8, 8], kernel=3, multiplier=3),
    specs.Conv2dSpec(
        input=[1, 3, 224, 224], filters=64, kernel=7, stride=2, padding=3, layout="NHWC"
    ),
    specs.Conv2dSpec(input=[1, 512, 7, 7], filters=512, kernel=3, padding=1, layout="NCHW16c"),
    STRIDED,
    specs.DepthwiseConv2dSpec(input=[1, 32, 112, 112], kernel=3, padding=1, layout="NHWC"),
    specs.DenseSpec(input=[1, 2048], units=1000),
    specs.DenseSpec(input=[1, 8], units=3),
]


DIRECT_ONLY = TemplateOptions(algorithms=("direct",))


def space_of(spec, target=ZEN4):
    return TemplateSpace(DIRECT_ONLY).design_space(spec.task("t", target))


@pytest.mark.parametrize("target", [ZEN4, HASWELL])
@pytest.mark.parametrize("spec", SHAPES, ids=lambda spec: f"{spec.kind}-{SHAPES.index(spec)}")
def test_guesses_are_legal_distinct_and_features_finite(spec, target):
    require_sound(space_of(spec, target))


def test_a_space_belongs_to_its_cpu():
    assert space_of(R8).fingerprint != space_of(R8, HASWELL).fingerprint


@pytest.mark.parametrize("spec", SHAPES, ids=lambda spec: f"{spec.kind}-{SHAPES.index(spec)}")
def test_every_configuration_has_a_guessed_cost_the_first_guess_a_low_one(spec):
    space = TemplateSpace(TemplateOptions()).design_space(spec.task("t", HASWELL))
    drawn = space.sample(200, np.random.default_rng(0))
    cost = space.guessed_cost(space.values(drawn))
    assert cost.shape == (len(drawn),)
    assert np.isfinite(cost).all()
    assert (cost > 0.0).all()
    assert space.guessed_cost(space.values(space.first_guesses[:1]))[0] <= np.median(cost)


_TOKENS = [1, 12, 128, 64]


@pytest.mark.parametrize("target", [ZEN4, HASWELL])
@pytest.mark.parametrize(
    "spec",
    [
        specs.DenseSpec(input=[128, 768], units=768),
        specs.BatchMatmulSpec(a=[12, 128, 64], b=[12, 64, 128]),
        specs.AttentionSpec(query=_TOKENS, key=_TOKENS, value=_TOKENS, scale=0.125),
    ],
    ids=lambda spec: spec.kind,
)
def test_the_unit_of_guesses_is_the_time_at_the_full_rate(spec, target):
    assert 1.0 <= space_of(spec, target).guess <= 3.0


def test_a_configuration_is_guessed_alike_whatever_other_algorithms_there_are():
    joined = TemplateSpace(TemplateOptions()).design_space(R8.task("t", ZEN4))
    alone = space_of(R8)
    values = joined.values(joined.sample(200, np.random.default_rng(0)))
    direct = values["algorithm"] == "direct"
    assert direct.any()
    assert not direct.all()
    own = {knob.name: values[knob.name][direct] for knob in alone.knobs}
    assert np.array_equal(joined.guessed_cost(values)[direct], alone.guessed_cost(own))


@pytest.mark.parametrize(("target", "registers"), [(ZEN4, 32), (HASWELL, 16)])
def test_no_legal_tile_needs_more_registers_than_there_are(target, registers):
    space = space_of(R8, target)
    values = space.values(space.sample(500, np.random.default_rng(1)))
    sums = values["tile_rows"] * values["tile_columns"] * values["tile_vectors"]
    assert (sums + values["tile_vectors"] <= registers).all()
    assert (sums >= registers // 4).all()


POINTWISE = specs.Conv2dSpec(input=[1, 64, 56, 56], filters=64, kernel=1, layout="NHWC")
GOOD = {
    "tile_rows": 1,
    "tile_columns": 4,
    "tile_vectors": 4,
    "channel_block": 64,
    "input": "in_place",
    "outermost": "positions",
    "unroll": 1,
}


def costs(spec, target, *tiles):
    info = target_info(target)
    geometry = geometry_of(spec, info.vector_bytes // 4)
    blocks = (8, spec.input[1])
    tiling = DirectTiling(geometry, info, in_place=True, channel_blocks=blocks)
    return tiling.guessed_cost({name: np.array([t[name] for t in tiles]) for name in GOOD})


@pytest.mark.parametrize(
    "worse",
    [
        pytest.param({"tile_columns": 1, "tile_vectors": 1}, id="each-sum-waits-for-the-last"),
        pytest.param({"tile_columns": 5, "tile_vectors": 3}, id="a-third-is-computed-in-vain"),
        pytest.param({"tile_columns": 14, "tile_vectors": 2}, id="stores-are-waited-for"),
        pytest.param({"input": "copy"}, id="copied-for-nothing"),
        pytest.param({"channel_block": 8}, id="short-inner-loop"),
    ],
)
def test_the_guess_prefers_tiles_with_nothing_against_them(worse):
    good, bad = costs(POINTWISE, ZEN4, GOOD, GOOD | worse)
    assert good < bad


@pytest.mark.parametrize("target", [ZEN4, HASWELL])
def test_the_guess_avoids_reading_all_weights_again_for_each_position(target):
    spec = specs.Conv2dSpec(input=[1, 512, 7, 7], filters=512, kernel=3, padding=1, layout="NHWC")
    tile = GOOD | {"channel_block": 512, "tile_columns": 4, "tile_vectors": 2}
    good, bad = costs(spec, target, tile, tile | {"tile_columns": 1, "tile_vectors": 8})
    assert bad > 1.5 * good


def test_the_guess_keeps_both_cores_busy():
    spec = specs.Conv2dSpec(input=[1, 64, 3, 7], filters=16, kernel=1, layout="NHWC")
    tile = GOOD | {"tile_columns": 7, "tile_vectors": 1}
    alone = costs(spec, ZEN4, tile | {"tile_rows": 3})
    assert costs(spec, ZEN4, tile) < alone


def test_the_first_guesses_are_among_the_cheapest():
    tiling = DirectTiling(
        geometry_of(POINTWISE, 16), target_info(ZEN4), in_place=True, channel_blocks=(8, 64)
    )
    space = tiling.space()
    drawn = space.sample(500, np.random.default_rng(0))
    guessed = tiling.guessed_cost(space.values(space.first_guesses))
    assert guessed[0] == guessed.min()
    assert guessed.max() < np.quantile(tiling.guessed_cost(space.values(drawn)), 0.2)


def test_plain_nchw_must_be_copied():
    space = space_of(STRIDED)
    assert space.knobs[space.index["input"]].options == ("copy",)


@given(st.integers(1, 300), st.integers(1, 30))
def test_tiles_cover_their_axis_and_waste_little(extent, most):
    sizes = tile_sizes(extent, most)
    assert 1 in sizes
    assert all(size <= min(extent, most) for size in sizes)
    assert all(-(-extent // size) * size <= 1.13 * extent for size in sizes)


@given(st.integers(1, 9), st.integers(1, 3), st.integers(0, 3), st.integers(1, 5))
def test_tiles_of_one_class_have_the_same_taps(kernel, stride, padding, columns):
    spec = specs.Conv2dSpec(input=[1, 4, 23, 23], filters=4, kernel=kernel, stride=stride)
    geometry = geometry_of(attrs.evolve(spec, padding=padding), 16)
    width = geometry.out[1]
    columns = min(columns, width)
    patterns = tap_patterns(geometry, columns)
    starts = np.minimum(np.arange(len(patterns)) * columns, width - columns)
    taps = valid_taps(geometry, starts, columns)
    for pattern in np.unique(patterns):
        alike = taps[patterns == pattern]
        assert (alike == alike[0]).all()


def test_templates_say_where_they_do_not_apply():
    provider = TemplateSpace(TemplateOptions())
    odd = Task(name="t", operator="primfunc", arguments={}, target=ZEN4, flop=1.0)
    for task in (odd, CONV1D.task("t", CUDA), R8.task("t", VULKAN)):
        with pytest.raises(ConfigError) as caught:
            provider.design_space(task)
        assert "sketch" in caught.value.hint


def test_auto_takes_the_template_where_it_applies():
    auto = AutoSpace(AutoOptions(algorithms=("direct",)))
    task = R8.task("t", ZEN4)
    assert auto.design_space(task).fingerprint == space_of(R8).fingerprint
    assert isinstance(auto.builder(task, threads=1), TemplateBuilder)
    assert not isinstance(auto.builder(CONV1D.task("t", CUDA), threads=1), TemplateBuilder)


def test_a_function_is_written_once_for_all_constants_of_an_operator():
    builder = TemplateSpace(DIRECT_ONLY).builder(R8.task("t", ZEN4), threads=1)
    first, second, *_ = map(tuple, builder.space.first_guesses)
    functions = [builder.program(config).function for config in (first, first, second)]
    assert functions[0] is functions[1]
    assert functions[0] is not functions[2]


# -- first guesses against what LLVM makes of a tile -----------------------------------------------


AVX2 = json.dumps({"kind": "llvm", "mcpu": "znver3", "num-cores": 2})
NEON = json.dumps(
    {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mattr": ["+neon"], "num-cores": 2}
)
SPEC = specs.Conv2dSpec(input=(1, 64, 1, 26), filters=24, kernel=1, layout="NHWC")


def _spilled(target, spec, **tile):
    info = target_info(target)
    geometry = geometry_of(spec, info.lanes("float32"))
    tiling = DirectTiling(geometry, info, in_place=True, channel_blocks=(geometry.ic,))
    return tiling._spilled({f"tile_{name}": np.array(values) for name, values in tile.items()})


def _stack_accesses(columns, vectors):
    """Vectors that the kernel of a tile stores on the stack or loads from there."""
    template = ConvolutionTemplate(SPEC.task("t", AVX2), TemplateOptions())
    tile = {"tile_rows": 1, "tile_columns": columns, "tile_vectors": vectors}
    rest = {"channel_block": 64, "input": "in_place", "outermost": "positions", "unroll": 1}
    lines = assembly_of(template.function({**tile, **rest}), AVX2).splitlines()
    return sum("(%rsp)" in line and "ymm" in line for line in lines)


@pytest.mark.parametrize(("columns", "vectors"), [(7, 1), (9, 1), (13, 1), (6, 2), (4, 3)])
def test_sums_are_guessed_to_be_stored_where_llvm_stores_them(columns, vectors):
    [share] = _spilled(AVX2, SPEC, rows=[1], columns=[columns], vectors=[vectors])
    assert (share > 0) == (_stack_accesses(columns, vectors) > 0)


def test_more_positions_than_half_of_the_registers_spill_with_one_vector_alone():
    columns = list(range(1, 15))
    result = _spilled(AVX2, SPEC, rows=[1] * 14, columns=columns, vectors=[1] * 14)
    assert (result[:7] == 0).all()
    assert (np.diff(result[6:]) > 0).all()
    assert not _spilled(AVX2, SPEC, rows=[1] * 14, columns=columns, vectors=[2] * 14).any()


@pytest.mark.parametrize("target", [ZEN4, NEON])
def test_nothing_spills_where_a_multiply_add_broadcasts_or_overwrites_its_sum(target):
    assert not _spilled(target, SPEC, rows=[1, 1], columns=[13, 26], vectors=[1, 1]).any()


@pytest.mark.parametrize(("channels", "filters"), [(256, 48), (512, 1000)])
def test_a_map_thirteen_wide_is_not_guessed_to_fit_the_registers_at_once(channels, filters):
    spec = specs.Conv2dSpec(input=(1, channels, 13, 13), filters=filters, kernel=1, layout="NHWC")
    space = TemplateSpace(TemplateOptions()).design_space(spec.task("t", AVX2))
    first = space.decode(space.first_guesses[0])
    assert first["tile_rows"] * first["tile_columns"] < 13
    wide = TemplateSpace(TemplateOptions()).design_space(spec.task("t", ZEN4))
    assert wide.decode(wide.first_guesses[0])["tile_columns"] == 13


# -- what first guesses are chosen from ------------------------------------------------------------


@given(cards=st.lists(st.integers(1, 12), min_size=1, max_size=7), count=st.integers(50, 5_000))
def test_choices_of_the_last_knobs_occur_equally_often(cards, count):
    space = grid(*cards)
    rows = evenly_spaced(space, count)
    assert 0 < len(rows) < 2 * count
    assert len(space.distinct(rows)) == len(rows)
    assert len(rows) == space.size or space.size > count
    # A stride that shares no factor with the numbers of choices meets those of the last knobs in
    # turn, whichever of them are taken together.
    for knobs in range(1, len(cards) + 1):
        together = np.unique(rows[:, -knobs:], axis=0, return_counts=True)[1]
        assert together.max() - together.min() <= 1
        assert len(together) == min(len(rows), math.prod(cards[-knobs:]))


@pytest.mark.parametrize("size", [120_000, 150_000, 239_999])
def test_the_last_knob_is_not_always_the_same_in_spaces_of_this_size(size):
    """A stride of 3 once met one of three choices."""
    assert set(evenly_spaced(grid(size // 60, 2, 2, 5, 3), 60_000)[:, -1]) == {0, 1, 2}
    unrolls = DesignSpace(
        [
            *(Choice(name=n, options=(0, 1)) for n in ("tile_rows", "tile_columns")),
            *(Choice(name=n, options=(0, 1)) for n in ("tile_vectors", "input")),
            Choice(name="channel_block", options=tuple(range(size // 48))),
            Choice(name="unroll", options=(1, 2, 4)),
        ]
    )
    start = first_guesses(
        unrolls,
        lambda values: np.asarray(values["channel_block"], float),
        DirectTiling.tile_knobs,
    )
    assert set(start[:, unrolls.index["unroll"]]) == {0, 1, 2}
