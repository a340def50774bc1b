"""Functions of loops compute the same with every schedule, whatever their extents."""

import math
import re
from unittest.mock import Mock

import numpy as np
import pytest
from chameleon_core._errors import ConfigError
from chameleon_core._fallbacks import STRICT
from chameleon_tvm._operators.activations import activate, activated
from chameleon_tvm._operators.elementary import FUNCTIONS
from chameleon_tvm._operators.matmul_specs import DenseSpec
from chameleon_tvm._quick_tvm import te, tirx
from chameleon_tvm._spaces.loops.lowering import loops_of, vectorize
from chameleon_tvm._spaces.loops.partial_sums import with_initial_extrema
from chameleon_tvm._spaces.loops.schedule import LoopPlan, default_plan, scheduled
from chameleon_tvm._spaces.loops.template import LoopTemplate
from chameleon_tvm._spaces.loops.trees import find_nodes
from chameleon_tvm._spaces.loops.vectors import counted_loop
from chameleon_tvm._spaces.template.options import TemplateOptions
from computing import assembly_of, ran, resolved
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tvm import topi

AVX2 = resolved("llvm -mtriple=x86_64-linux-gnu -mcpu=haswell -num-cores=2")
RNG = np.random.default_rng(0)


def _begun(tensors):
    """A function whose maxima begin at infinity, as those of a network do."""
    return with_initial_extrema(te.create_prim_func(tensors), infinite=True)


def _with_holes(x):
    """Numbers, of which some fractions become NaN or infinite."""
    if x.dtype.kind != "f":
        return x
    draw, share = RNG.random(x.shape), min(0.05, 0.5 / max(x.shape))  # few of a long axis
    for place, number in enumerate((np.nan, -np.inf, np.inf)):
        hole = (draw >= place * share) & (draw < (place + 1) * share)
        x = np.where(hole, x.dtype.type(number), x)
    return x


def _softmax(rows, columns):
    """A maximum, an exponential, a sum, a quotient: four blocks of rows."""
    x = te.placeholder((rows, columns), name="x")
    k, j = (te.reduce_axis((0, columns), name=name) for name in "kj")
    most = te.compute((rows,), lambda i: te.max(x[i, k], axis=k), name="most")
    power = te.compute((rows, columns), lambda i, c: te.exp(x[i, c] - most[i]), name="power")
    total = te.compute((rows,), lambda i: te.sum(power[i, j], axis=j), name="total")
    out = te.compute((rows, columns), lambda i, c: power[i, c] / total[i], name="out")
    return te.create_prim_func([x, out])


def _pool(rows, columns):
    """A mean over the first axis: sums whose terms are apart in memory."""
    x = te.placeholder((rows, columns), name="x")
    k = te.reduce_axis((0, rows), name="k")
    total = te.compute((1, columns), lambda i, c: te.sum(x[k + i, c], axis=k), name="total")
    out = te.compute((1, columns), lambda i, c: total[i, c] / float(rows), name="out")
    return te.create_prim_func([x, out])


def _wide_sum(along):
    """A function that adds up squares of float32 in float64 along some axes."""

    def build(rows, columns):
        x = te.placeholder((rows, columns), name="x")
        axes = [te.reduce_axis((0, x.shape[axis]), name=f"k{axis}") for axis in along]

        def total(*at):
            places = dict(zip([axis for axis in (0, 1) if axis not in along], at, strict=True))
            places |= dict(zip(along, (axis.var for axis in axes), strict=True))
            number = x[places[0], places[1]]
            return te.sum((number * number).astype("float64"), axis=axes)

        kept = [x.shape[axis] for axis in (0, 1) if axis not in along]
        whole = te.compute(kept, total, name="whole")
        return te.create_prim_func(
            [x, te.compute(kept, lambda *at: whole(*at).astype("float32"), name="out")]
        )

    return build, lambda x: (x * x).sum(axis=along)


def _turned(rows, columns):
    x = te.placeholder((rows, columns), name="x")
    return te.create_prim_func([x, te.compute((columns, rows), lambda i, j: x[j, i], name="out")])


def _turned_sum(rows, columns):
    """A transposition that also reads along its output and along neither axis."""
    x = te.placeholder((rows, columns), name="x")
    return te.create_prim_func(
        [x, te.compute((columns, rows), lambda i, j: x[j, i] - x[0, i] * x[j, 0], name="out")]
    )


def _wider(times, value):
    """Functions whose rows are some times as long as those that they read."""

    def made(rows, columns):
        x = te.placeholder((rows, columns), name="x")
        shape = (rows, times * columns)
        out = te.compute(shape, lambda i, c: value(x, columns, i, c), name="out")
        return te.create_prim_func([x, out])

    return made


# Two arrays beside each other, read under a condition.
_joined = _wider(2, lambda x, n, i, c: tirx.if_then_else(c < n, x[i, c], -x[i, c - n]))
# Rows beside each other four times, each with its first half and the other one negated.
_repeated = _wider(
    4, lambda x, n, i, c: tirx.if_then_else(c % n < n // 2, x[i, c % n], -x[i, c % n])
)
# Columns in pairs of half a row, the other way round and shifted.
_backwards = _wider(2, lambda x, n, i, c: x[i, (5 - c) % n] + x[i, (4 * n - 1 - c) // 4])


def _exactly_backwards(x):
    columns = x.shape[1]
    places = np.arange(2 * columns)
    return x[:, (5 - places) % columns] + x[:, (4 * columns - 1 - places) // 4]


def _exactly_repeated(x):
    half = x.shape[1] // 2
    return np.tile(np.concatenate([x[:, :half], -x[:, half:]], axis=1), 4)


def _exact_softmax(x, axis=1):
    powers = np.exp(x - x.max(axis, keepdims=True))
    return powers / powers.sum(axis, keepdims=True)


FUNCTIONS_OF_LOOPS = {
    "softmax": (_softmax, _exact_softmax),
    "pool": (_pool, lambda x: x.mean(axis=0, keepdims=True)),
    "wide sums of rows": _wide_sum((1,)),
    "wide sums of columns": _wide_sum((0,)),
    "wide sum": _wide_sum((0, 1)),
    "turned": (_turned, np.transpose),
    "turned sum": (_turned_sum, lambda x: (x - x[:1] * x[:, :1]).T),
    "joined": (_joined, lambda x: np.concatenate([x, -x], axis=1)),
    "repeated": (_repeated, _exactly_repeated),
    "backwards": (_backwards, _exactly_backwards),
}


@settings(max_examples=16)
@given(
    name=st.sampled_from(sorted(FUNCTIONS_OF_LOOPS)),
    rows=st.integers(1, 40),
    columns=st.integers(1, 70),
    plan=st.builds(
        LoopPlan,
        rows=st.booleans(),
        threads=st.booleans(),
        block=st.sampled_from([1, 8, 16]),
        columns=st.sampled_from([1, 4]),
    ),
    lanes=st.sampled_from([4, 8, 16]),
)
def test_every_schedule_computes_the_same(name, rows, columns, plan, lanes):
    build, exact = FUNCTIONS_OF_LOOPS[name]
    function = loops_of(scheduled(build(rows, columns), plan, lanes))
    x = RNG.standard_normal((rows, columns)).astype(np.float32)
    expected = exact(x.astype(np.float64))
    got = ran(function, [x], expected.shape)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


def test_reductions_that_tvm_cannot_divide_keep_their_loops():
    x = te.placeholder((3, 40_000), "bool", name="x")
    some = te.create_prim_func([x, topi.any(x, axis=1)])
    function = loops_of(scheduled(some, default_plan(some), 8))
    numbers = np.zeros((3, 40_000), bool)
    numbers[1, 39_999] = True
    np.testing.assert_array_equal(ran(function, [numbers], (3,), dtype="bool"), [0, 1, 0])


@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_shares_of_a_sum_are_divided(dtype):
    """Reciprocals of tiny sums are infinite, and those of integers are 0."""
    x = te.placeholder((4, 64), dtype, name="x")
    k = te.reduce_axis((0, 64), name="k")
    total = te.compute((4,), lambda i: te.sum(x[i, k], axis=k), name="total")

    def share(i, j):
        return x[i, j] / total[i] if dtype == "float32" else tirx.truncdiv(x[i, j], total[i])

    function = te.create_prim_func([x, te.compute((4, 64), share, name="out")])
    numbers = np.where(np.arange(64) == 5, 100, -1) * np.ones((4, 1), np.int64)
    numbers = (numbers * (1e-41 if dtype == "float32" else 1)).astype(dtype)
    total = numbers.sum(1, keepdims=True)
    expected = numbers / total if dtype == "float32" else np.trunc(numbers / total)
    got = ran(loops_of(scheduled(function, LoopPlan(), 8)), [numbers], (4, 64), dtype=dtype)
    np.testing.assert_allclose(got, expected, rtol=1e-3)


@pytest.mark.parametrize(("rows", "columns"), [(67, 130), (16, 8), (9, 300)])
def test_transpositions_move_whole_vectors(rows, columns):
    function = loops_of(scheduled(_turned(rows, columns), LoopPlan(), 8))
    stores = find_nodes(function.body, tirx.BufferStore)
    assert {str(store.value.ty) for store in stores} == {"float32x8"}


def test_no_remainder_of_a_loop_is_left_for_llvms_vectorizer():
    i, x, out = tirx.Var("i", "int64"), *(tirx.decl_buffer([32], name=name) for name in ("x", "y"))
    halves = tirx.if_then_else(i % 8 < 4, x[i % 8], -x[i // 8])
    loop = counted_loop(i, 32, tirx.BufferStore(out, halves, [i]))
    assert not find_nodes(vectorize(loop, 16), tirx.FloorMod)


REDUCTIONS = {
    "sum": (topi.sum, lambda x, axis: x.sum(axis)),
    "product": (topi.prod, lambda x, axis: x.prod(axis)),
    "largest": (topi.max, lambda x, axis: x.max(axis)),
    "least": (topi.min, lambda x, axis: x.min(axis)),
    "place": (topi.argmax, lambda x, axis: x.argmax(axis)),
    "softmax": (topi.nn.softmax, _exact_softmax),
}
SCHEDULES = st.tuples(
    st.builds(
        LoopPlan, rows=st.booleans(), threads=st.booleans(), columns=st.sampled_from([1, 2, 8])
    ),
    st.sampled_from([4, 8, 16]),
)
SHAPES = st.lists(st.sampled_from([1, 2, 3, 5, 7, 9, 16, 19, 40, 67, 130]), min_size=1, max_size=4)


@settings(max_examples=30)
@given(
    name=st.sampled_from(sorted(REDUCTIONS)),
    shape=SHAPES.filter(lambda shape: math.prod(shape) < 200_000),
    dtype=st.sampled_from(["float32", "float64", "int32", "int64"]),
    schedule=SCHEDULES,
    data=st.data(),
)
def test_reductions_along_any_axis(name, shape, dtype, schedule, data):
    whole = dtype.startswith("int")
    assume(not (whole and name == "softmax"))
    axis = data.draw(st.integers(0, len(shape) - 1), label="axis")
    build, exact = REDUCTIONS[name]
    source = te.placeholder(tuple(shape), dtype, name="source")
    result = build(source, axis=axis)
    x = RNG.integers(-2, 3, shape) if whole else RNG.uniform(0.9, 1.1, shape)
    x = _with_holes(x.astype(dtype)) if name in {"largest", "least"} else x.astype(dtype)
    with np.errstate(over="ignore"):
        expected = exact(x if whole else x.astype(np.float64), axis)
    kind = str(result.dtype)
    function = scheduled(_begun([source, result]), *schedule)
    got = ran(loops_of(function), [x], expected.shape, kind)
    np.testing.assert_allclose(got, expected.astype(kind), rtol=2e-5)


@settings(max_examples=15)
@given(
    kind=st.sampled_from(["max", "avg"]),
    edges=st.lists(st.integers(5, 41), min_size=1, max_size=3),
    sizes=st.tuples(st.integers(1, 4), st.integers(1, 5), st.integers(0, 1)),
    schedule=SCHEDULES,
)
def test_windows_over_borders(kind, edges, sizes, schedule):
    window, stride, padding = sizes
    assume(padding < window)
    rank, shape = len(edges), (2, *edges)
    pool = {1: topi.nn.pool1d, 2: topi.nn.pool2d, 3: topi.nn.pool3d}[rank]
    source = te.placeholder((1, *shape), name="source")
    layout = "NC" + "DHW"[3 - rank :]
    rows = [[window] * rank, [stride] * rank, [1] * rank, [padding] * 2 * rank]
    result = pool(source, *rows, kind, False, layout, False)
    function = scheduled(_begun([source, result]), *schedule)
    x = RNG.standard_normal((1, *shape)).astype(np.float32)
    x = _with_holes(x) if kind == "max" else x
    outside = -np.inf if kind == "max" else np.nan
    around = [(0, 0), (0, 0), *[(padding, padding)] * rank]
    padded = np.pad(x, around, constant_values=outside)
    axes = tuple(range(2, 2 + rank))
    windows = np.lib.stride_tricks.sliding_window_view(padded, [window] * rank, axes)
    windows = windows[(slice(None), slice(None), *[slice(None, None, stride)] * rank)]
    inner = tuple(range(-rank, 0))
    expected = windows.max(inner) if kind == "max" else np.nanmean(windows, inner)
    got = ran(loops_of(function), [x], expected.shape)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("along", [(0,), (1,), (0, 1)])
def test_few_numbers_are_converted_for_a_sum_in_float64(along):
    build, exact = _wide_sum(along)
    function = loops_of(scheduled(build(128, 128), LoopPlan(), 8))
    converted = sum("cvtps2pd" in line for line in assembly_of(function, AVX2).splitlines())
    squared = sum("mulps" in line for line in assembly_of(function, AVX2).splitlines())
    assert 0 < converted < squared
    # A sum in float32 would lose all small squares.
    x = np.full((128, 128), 2.0**-13, np.float32)
    x[:, 0], x[0] = 1.0, 1.0
    expected = exact(x.astype(np.float64))
    np.testing.assert_allclose(ran(function, [x], expected.shape), expected, rtol=3e-7)


def test_small_arrays_of_a_row_lie_on_the_stack():
    assert "Workspace" not in assembly_of(
        loops_of(scheduled(_softmax(512, 40), LoopPlan(), 8)), AVX2
    )


def test_rows_are_one_parallel_loop():
    text = loops_of(scheduled(_softmax(64, 512), LoopPlan(), 8)).script()
    assert text.count("T.parallel") == 1
    apart = loops_of(scheduled(_softmax(64, 512), LoopPlan(rows=False), 8)).script()
    assert apart.count("T.parallel") > 1


@pytest.mark.parametrize("shape", [(1, 50257), (2, 3, 90, 101), (30011, 3)])
def test_long_reductions_are_divided_among_threads(shape):
    source = te.placeholder(shape, name="source")
    axes = tuple(range(len(shape) == 4, len(shape) - (shape[-1] == 3)))
    divided = loops_of(scheduled(_begun([source, topi.max(source, axes)]), LoopPlan(), 8))
    assert "T.parallel" in divided.script()
    examples = [RNG.standard_normal(shape), np.full(shape, -np.inf)]
    for place in (0, math.prod(shape) // 2, -1):
        examples.append(RNG.standard_normal(shape))
        examples[-1].flat[place] = np.nan
    for x in examples:
        expected = x.astype(np.float32).max(axes)
        got = ran(divided, [x.astype(np.float32)], expected.shape)
        np.testing.assert_array_equal(got, expected)


def test_extremes_that_keep_nan_are_computed_in_vectors():
    x = te.placeholder((64, 512), name="x")
    image = te.placeholder((1, 32, 40, 40), name="image")
    pool = topi.nn.pool2d(image, *([n, n] for n in (3, 2, 1)), [0] * 4, "max")
    for tensors in ([x, topi.max(x, 0)], [x, topi.min(x, 1)], [image, pool]):
        code = assembly_of(loops_of(scheduled(_begun(tensors), LoopPlan(), 8)), AVX2)
        assert len(re.findall("vblendvps.*ymm", code)) > 4 * len(re.findall("vcmp[a-z]*ss", code))


def test_the_maximum_of_a_softmax_does_without_nan():
    x = te.placeholder((64, 512), name="x")
    for axis in (0, 1):
        function = scheduled(_begun([x, topi.nn.softmax(x, axis)]), LoopPlan(), 8)
        assert "ord" not in "".join(re.findall("vcmp[a-z]*", assembly_of(loops_of(function), AVX2)))


def test_columns_of_a_product_are_added_up_together():
    x, y = te.placeholder((16, 24), name="x"), te.placeholder((24, 64), name="y")
    k = te.reduce_axis((0, 24), name="k")
    out = te.compute((16, 64), lambda i, c: te.sum(x[i, k] * y[k, c], axis=k), name="out")
    function = loops_of(scheduled(te.create_prim_func([x, y, out]), LoopPlan(), 8))
    assert "T.Broadcast(x" in function.script()
    arrays = [RNG.standard_normal(shape).astype(np.float32) for shape in ((16, 24), (24, 64))]
    got = ran(function, arrays, (16, 64))
    np.testing.assert_allclose(got, arrays[0] @ arrays[1], rtol=1e-4, atol=1e-5)


def test_threads_are_for_those_who_have_enough_to_do():
    assert not default_plan(_softmax(4, 8)).threads
    assert default_plan(_softmax(512, 512)).threads


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_elementary_functions_are_good_to_float32(name):
    ends = [-1e3, 1e3, np.inf, -np.inf, np.nan, 80.0, 88.5, 88.7]
    x = np.concatenate([RNG.uniform(-6, 6, 4000), ends, [0.0]]).astype(np.float32)
    source = te.placeholder(x.shape, name="source")
    out = te.compute(x.shape, lambda i: FUNCTIONS[name](source(i)), name="out")
    function = loops_of(scheduled(te.create_prim_func([source, out]), LoopPlan(), 8))
    with np.errstate(over="ignore"):
        exact = {
            "exp": np.exp,
            "exp2": np.exp2,
            "sigmoid": lambda v: 0.5 + 0.5 * np.tanh(0.5 * v),
            "tanh": np.tanh,
            "erf": np.vectorize(math.erf),
        }[name](x.astype(np.float64)).astype(np.float32)
    np.testing.assert_allclose(ran(function, [x], x.shape), exact, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("name", ["elu", "selu"])
def test_activations_of_small_numbers_have_all_digits(name):
    sizes = np.concatenate([10.0 ** RNG.uniform(-30, 2, 4000), [0.0, 0.34, 0.35]])
    x = np.concatenate([sizes, -sizes]).astype(np.float32)
    source = te.placeholder(x.shape, name="source")
    out = te.compute(x.shape, lambda i: activate(source(i), name), name="out")
    function = loops_of(scheduled(te.create_prim_func([source, out]), LoopPlan(), 8))
    exact = activated(x.astype(np.float64), name)
    np.testing.assert_allclose(ran(function, [x], x.shape), exact, rtol=1e-6, atol=1e-38)


def test_an_error_without_words_is_named(monkeypatch):
    monkeypatch.delenv(STRICT)
    refuse = Mock(side_effect=AssertionError)
    monkeypatch.setattr("chameleon_tvm._spaces.loops.template.default_plan", refuse)
    task = DenseSpec(input=(4, 8), units=8).task("t", AVX2)
    with pytest.raises(ConfigError, match="scheduled as loops: AssertionError"):
        LoopTemplate(task, TemplateOptions())
