"""Functions of loops compute the same with every schedule, whatever their extents."""

import math
from typing import Any

import numpy as np
import pytest
from chameleon_tvm.operators.elementary import FUNCTIONS
from chameleon_tvm.quick_tvm import te, tirx
from chameleon_tvm.spaces.loops.lowered import loops_of
from chameleon_tvm.spaces.loops.schedule import LoopPlan, default_plan, scheduled
from computing import ran
from hypothesis import given, settings
from hypothesis import strategies as st

RNG = np.random.default_rng(0)


def _softmax(rows: int, columns: int) -> Any:
    """A maximum, an exponential, a sum, a quotient: four blocks of rows."""
    x = te.placeholder((rows, columns), name="x")
    k, j = (te.reduce_axis((0, columns), name=name) for name in "kj")
    most = te.compute((rows,), lambda i: te.max(x[i, k], axis=k), name="most")
    power = te.compute((rows, columns), lambda i, c: te.exp(x[i, c] - most[i]), name="power")
    total = te.compute((rows,), lambda i: te.sum(power[i, j], axis=j), name="total")
    out = te.compute((rows, columns), lambda i, c: power[i, c] / total[i], name="out")
    return te.create_prim_func([x, out])


def _pool(rows: int, columns: int) -> Any:
    """A mean over the first axis: sums whose terms are apart in memory."""
    x = te.placeholder((rows, columns), name="x")
    k = te.reduce_axis((0, rows), name="k")
    total = te.compute((1, columns), lambda i, c: te.sum(x[k + i, c], axis=k), name="total")
    out = te.compute((1, columns), lambda i, c: total[i, c] / float(rows), name="out")
    return te.create_prim_func([x, out])


def _turned(rows: int, columns: int) -> Any:
    x = te.placeholder((rows, columns), name="x")
    return te.create_prim_func([x, te.compute((columns, rows), lambda i, j: x[j, i], name="out")])


def _joined(rows: int, columns: int) -> Any:
    """Two arrays beside each other, read under a condition."""
    x = te.placeholder((rows, columns), name="x")
    out = te.compute(
        (rows, 2 * columns),
        lambda i, c: tirx.if_then_else(c < columns, x[i, c], -x[i, c - columns]),
        name="out",
    )
    return te.create_prim_func([x, out])


def _exact_softmax(x: np.ndarray) -> np.ndarray:
    powers = np.exp(x - x.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


FUNCTIONS_OF_LOOPS = {
    "softmax": (_softmax, _exact_softmax),
    "pool": (_pool, lambda x: x.mean(axis=0, keepdims=True)),
    "turned": (_turned, np.transpose),
    "joined": (_joined, lambda x: np.concatenate([x, -x], axis=1)),
}


@settings(max_examples=24, deadline=None)
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
def test_every_schedule_computes_the_same(
    name: str, rows: int, columns: int, plan: LoopPlan, lanes: int
) -> None:
    build, exact = FUNCTIONS_OF_LOOPS[name]
    function = loops_of(scheduled(build(rows, columns), plan, lanes))
    x = RNG.standard_normal((rows, columns)).astype(np.float32)
    expected = exact(x.astype(np.float64))
    got = ran(function, [x], expected.shape)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


def test_rows_are_one_parallel_loop() -> None:
    text = loops_of(scheduled(_softmax(64, 512), LoopPlan(), 8)).script()
    assert text.count("T.parallel") == 1
    apart = loops_of(scheduled(_softmax(64, 512), LoopPlan(rows=False), 8)).script()
    assert apart.count("T.parallel") > 1


def test_columns_of_a_product_are_added_up_together() -> None:
    x, y = te.placeholder((16, 24), name="x"), te.placeholder((24, 64), name="y")
    k = te.reduce_axis((0, 24), name="k")
    out = te.compute((16, 64), lambda i, c: te.sum(x[i, k] * y[k, c], axis=k), name="out")
    function = loops_of(scheduled(te.create_prim_func([x, y, out]), LoopPlan(), 8))
    assert "T.Broadcast(x" in function.script()
    arrays = [RNG.standard_normal(shape).astype(np.float32) for shape in ((16, 24), (24, 64))]
    got = ran(function, arrays, (16, 64))
    np.testing.assert_allclose(got, arrays[0] @ arrays[1], rtol=1e-4, atol=1e-5)


def test_threads_are_for_those_who_have_enough_to_do() -> None:
    assert not default_plan(_softmax(4, 8)).threads
    assert default_plan(_softmax(512, 512)).threads


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_elementary_functions_are_good_to_float32(name: str) -> None:
    low, high = (-80.0, 80.0) if name == "exp" else (-1e3, 1e3)
    x = np.concatenate([RNG.uniform(-6, 6, 4000), [low, high, 0.0]]).astype(np.float32)
    source = te.placeholder(x.shape, name="source")
    out = te.compute(x.shape, lambda i: FUNCTIONS[name](source(i)), name="out")
    function = loops_of(scheduled(te.create_prim_func([source, out]), LoopPlan(), 8))
    exact = {
        "exp": np.exp,
        "sigmoid": lambda v: 0.5 + 0.5 * np.tanh(0.5 * v),
        "tanh": np.tanh,
        "erf": np.vectorize(math.erf),
    }[name](x.astype(np.float64))
    np.testing.assert_allclose(ran(function, [x], x.shape), exact, rtol=2e-6, atol=1e-6)
