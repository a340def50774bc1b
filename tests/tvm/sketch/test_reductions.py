import numpy as np
import pytest
from chameleon_tvm._quick_tvm import tirx
from chameleon_tvm._spaces.sketch.borders import guards_of, holds
from chameleon_tvm._spaces.sketch.lowering import lower_sketch
from chameleon_tvm._spaces.sketch.options import SketchOptions
from chameleon_tvm._spaces.sketch.plan import INLINE
from chameleon_tvm._spaces.sketch.provider import SketchBuilder, SketchSpace
from chameleon_tvm.api import Conv2dSpec, DenseSpec
from computing import require_reference
from hypothesis import given, settings
from hypothesis import strategies as st

FILTERS = 32
EVERYTHING = SketchOptions(start=0, prune=False)
WIDE = {"input": (1, 4, 9, 9), "padding": 2}
CONVOLUTIONS = {
    "three": {"input": (1, 8, 6, 6)},
    "strided": {"input": (1, 8, 8, 8), "stride": 2},
    "wide": {**WIDE, "kernel": 5},
    "dilated": {**WIDE, "dilation": 2},
    "NCHW": {"input": (1, 8, 6, 16), "layout": "NCHW"},
}
USUAL = {"filters": FILTERS, "kernel": 3, "padding": 1, "layout": "NHWC"}


def inlined(space, count):
    """Configurations whose padding is inlined."""
    column = space.index["compute_location_padded"]
    configs = space.sample(40 * count, np.random.default_rng(1))
    configs[:, column] = list(space.knobs[column].options).index(INLINE)
    configs = space.distinct(configs[space.legal(configs)])
    # Where vectors go on over the next loop, TVM's own programs read weights out of bounds.
    return configs[space.values(configs)["tile_oc"][:, -1] < FILTERS][:count]


@pytest.mark.full
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_inlined_padding_computes_the_same_numbers(name, target):
    task = Conv2dSpec(**{**USUAL, **CONVOLUTIONS[name]}, name=name).task(name, target)
    provider = SketchSpace(EVERYTHING)
    space, builder = provider.design_space(task), provider.builder(task, threads=1)
    configs = inlined(space, 6)
    assert len(configs)
    require_reference(builder, configs)


def described(task, *, skips):
    """The loops of inlined configurations that skip padding by the model, or do not."""
    options = SketchOptions(start=0, prune=skips)
    space = SketchSpace(options).design_space(task)
    builder = SketchBuilder(task, options, threads=1)
    configs = inlined(space, 400)
    feature = space.features(configs)[:, space.feature_names.index("nest.skips_padding")]
    chosen = configs[(feature > 0) == skips][:8]
    assert len(chosen)
    return [lower_sketch(builder.scheduled(config).function).script() for config in chosen]


def test_the_model_knows_where_no_condition_is_left_in_the_innermost_loops(task):
    for script in described(task, skips=True):
        assert "if_then_else" not in script
        assert "if " in script  # Rows are still told apart, further out.


def test_the_model_knows_where_conditions_stay(task):
    assert any("if_then_else" in script for script in described(task, skips=False))


def test_conditions_in_the_innermost_loops_are_no_choice_unless_asked_for(task):
    everything = SketchSpace(EVERYTHING).design_space(task)
    configs = inlined(everything, 400)
    names = everything.feature_names
    conditional = everything.features(configs)[:, names.index("nest.skips_padding")] == 0
    assert conditional.any()
    pruned = SketchSpace(SketchOptions(start=0)).design_space(task)
    drawn = inlined(pruned, 400)
    assert len(drawn)
    skips = pruned.features(drawn)[:, pruned.feature_names.index("nest.skips_padding")]
    assert (skips > 0).all()


def test_sums_are_indexed_by_constants_alone(target):
    task = DenseSpec(input=(4, 32), units=64, name="dense").task("dense", target)
    space = SketchSpace(SketchOptions(start=0)).design_space(task)
    builder = SketchBuilder(task, SketchOptions(), threads=1)
    configs = space.sample(60, np.random.default_rng(1))
    features = space.features(configs)
    configs = configs[features[:, space.feature_names.index("nest.inner_reduction")] > 1]
    stays = space.features(configs)[:, space.feature_names.index("nest.sums_kept")] > 0
    assert stays.any()
    assert not stays.all()
    for config in configs[stays][:6]:
        script = lower_sketch(builder.scheduled(config).function).script()
        assert [line for line in script.splitlines() if "sums_1[" in line or "sums[" in line]
    for config in configs[~stays][:6]:
        assert "sums" not in lower_sketch(builder.scheduled(config).function).script()


def test_metaschedules_own_programs_are_an_option(task):
    options = SketchOptions(rewrite_sums=False)
    assert not SketchBuilder(task, options, threads=1).program([0] * 9).plain_loops
    space = SketchSpace(SketchOptions(rewrite_sums=False, start=0)).design_space(task)
    names = space.feature_names
    features = space.features(space.sample(20, np.random.default_rng(0)))
    assert not features[:, names.index("nest.sums_kept")].any()
    assert not features[:, names.index("nest.skips_padding")].any()


@settings(deadline=None, max_examples=60)
@given(
    sizes=st.tuples(
        *(st.integers(1, most) for most in (6, 6, 5, 2, 2)), st.integers(0, 4), st.integers(1, 20)
    )
)
def test_versions_and_runs_cover_what_is_inside_and_nothing_else(sizes):
    width, tiles, taps, stride, dilation, pad, size = sizes
    o, i, r = (tirx.Var(name, "int32") for name in ("o", "i", "r"))
    row = (o * width + i) * stride + r * dilation
    conjuncts = [pad <= row, row < pad + size]
    guards = guarded(conjuncts, {"o": tiles, "r": taps, "i": width})
    assert not guards.hoisted
    where = dict(zip(("o", "r", "i"), np.ogrid[:tiles, :taps, :width], strict=True))
    inside = np.ones((tiles, taps, width), bool)
    for conjunct in conjuncts:
        inside &= holds(conjunct, where)
    if not guards.borders:
        assert len(guards.remaining) == len(conjuncts)
        return
    (border,) = guards.borders
    covered = np.zeros_like(inside, int)
    for tile in range(tiles):
        for version in border.versions:
            if version.condition is None or _true(version.condition, tile):
                for start, count, first, length in version.runs:
                    covered[tile, start : start + count, first : first + length] += 1
                break
    np.testing.assert_array_equal(covered, inside)


def _true(condition, o):
    if isinstance(condition, tirx.And):
        return _true(condition.a, o) and _true(condition.b, o)
    return bool(holds(condition, {"o": o}))


def guarded(conditions, ranges):
    """Guards of a tile of ``i`` under a window of ``r``, further out ``o``."""
    return guards_of(
        conditions, ranges, reductions=["r"], tile=["i"], available={"r": frozenset({"o"})}
    )


def test_a_border_of_four_kinds_is_left_alone():
    o, i, r = (tirx.Var(name, "int32") for name in ("o", "i", "r"))
    # Tiles of one column under a wide window: many different beginnings and ends.
    row = o * 2 + i + r
    guards = guarded([row >= 6, row < 8], {"o": 8, "r": 9, "i": 2})
    assert not guards.borders
    assert len(guards.remaining) == 2


def test_conditions_on_outer_loops_are_moved_out():
    o, r, i = (tirx.Var(name, "int32") for name in ("o", "r", "i"))
    guards = guarded([o + r >= 1, i + r >= 1, o + i >= 1], {"o": 4, "r": 3, "i": 2})
    assert len(guards.hoisted) == 1
    assert len(guards.borders) == 1
    assert len(guards.remaining) == 1  # No loop of the reduction can be split for it.
