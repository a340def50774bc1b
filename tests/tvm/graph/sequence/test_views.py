"""Concatenations, splits and slices move nothing where they need not, and numbers stay the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from chameleon_tvm.graph.relaxed import relax
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .conftest import Delivered, expected, module_of

op = relax.op
LAYOUTS = ("NCHW", "NHWC")


def _conv(emit: Any, x: Any, filters: int, size: int = 1) -> Any:
    channels = int(x.ty.shape[1])
    rng = np.random.default_rng([filters, size, channels])
    weights = rng.standard_normal((filters, channels, size, size), np.float32)
    scaled = relax.const(weights / np.float32(size * np.sqrt(channels)))
    return emit(op.nn.conv2d(x, scaled, padding=size // 2))


def _moves(network: Delivered) -> list[str]:
    """Kernels that do nothing but move data because of a concatenation, split or slice."""
    return [name for name in network.kernels if name.startswith(("concat", "split", "slice"))]


def _check(network: Delivered, module: Any, *inputs: Any) -> None:
    found = network.run(*inputs)
    for one, other in zip(
        found if isinstance(found, list) else [found], expected(module, *inputs), strict=True
    ):
        assert one.shape == other.shape
        scale = max(float(np.abs(other).max(initial=0.0)), 1e-3)
        np.testing.assert_allclose(one, other, atol=2e-5 * scale, rtol=0)


def _image(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape, np.float32)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("seed", [None, 0, 1])
def test_a_fire_module_concatenates_for_nothing(deliver: Any, layout: str, seed: int | None):
    def build(emit: Any, x: Any) -> Any:
        squeezed = emit(op.nn.relu(_conv(emit, x, 8)))
        parts = [emit(op.nn.relu(_conv(emit, squeezed, 24, size))) for size in (1, 3)]
        both = emit(op.concat(parts, axis=1))
        return _conv(emit, emit(op.nn.max_pool2d(both, (2, 2), (2, 2))), 10)

    module = module_of(build, ((1, 16, 12, 12), "float32"))
    network = deliver(module, layout=layout, seed=seed)
    assert _moves(network) == []
    _check(network, module, _image(1, 16, 12, 12))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("seed", [None, 2])
def test_branches_read_their_part_of_a_split(deliver: Any, layout: str, seed: int | None):
    def build(emit: Any, x: Any) -> Any:
        parts = emit(op.split(_conv(emit, x, 48), [16, 20], axis=1))
        left, thin, right = (emit(parts[place]) for place in range(3))
        pooled = emit(op.nn.avg_pool2d(thin, (3, 3), (1, 1), (1, 1)))
        return emit(op.concat([_conv(emit, left, 16, 3), pooled, _conv(emit, right, 8)], axis=1))

    module = module_of(build, ((1, 8, 10, 10), "float32"))
    network = deliver(module, layout=layout, seed=seed)
    # A template that reads columns and channels as one axis needs them without gaps.
    assert [name for name in _moves(network) if seed is None or "concat" in name] == []
    _check(network, module, _image(1, 8, 10, 10))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_cannot_be_a_view_is_copied_alone(deliver: Any, layout: str):
    def build(emit: Any, x: Any) -> Any:
        one, other = _conv(emit, x, 6), _conv(emit, x, 5)
        twice = emit(op.concat([one, other, one], axis=1))
        again = emit(op.concat([_conv(emit, twice, 4), other], axis=1))
        return _conv(emit, twice, 3), _conv(emit, again, 3)

    module = module_of(build, ((1, 8, 6, 6), "float32"))
    network = deliver(module, layout=layout)
    assert len(_moves(network)) == 2, "the second of the twins, and what two results hold"
    _check(network, module, _image(1, 8, 6, 6))


def test_dense_blocks_share_one_tensor(deliver: Any):
    def build(emit: Any, x: Any) -> Any:
        grown = _conv(emit, x, 8)
        for _ in range(3):
            grown = emit(op.concat([grown, _conv(emit, grown, 4, 3)], axis=1))
        return _conv(emit, grown, 5)

    module = module_of(build, ((1, 8, 6, 6), "float32"))
    network = deliver(module, layout="NHWC")
    assert _moves(network) == [], "a result that is a part of another lies in that"
    _check(network, module, _image(1, 8, 6, 6))


def test_results_and_inputs_of_the_network_stay_the_callers(deliver: Any):
    def build(emit: Any, x: Any) -> Any:
        one = _conv(emit, x, 4)
        both = emit(op.concat([one, x, _conv(emit, x, 4)], axis=1))
        halves = emit(op.split(_conv(emit, both, 6), 2, axis=1))
        return one, both, emit(halves[0]), _conv(emit, emit(halves[1]), 3)

    module = module_of(build, ((2, 4, 5, 5), "float32"))
    for layout in LAYOUTS:
        _check(deliver(module, layout=layout), module, _image(2, 4, 5, 5))


def test_slices_are_read_where_they_are(deliver: Any):
    def build(emit: Any, x: Any) -> Any:
        made = _conv(emit, x, 8)
        inner = emit(op.strided_slice(made, [2, 3], [1, -6], [7, -1]))
        every = emit(op.strided_slice(made, [1], [2], [6]))
        skipped = emit(op.strided_slice(made, [2], [0], [8], [2]))
        return tuple(_conv(emit, one, 3) for one in (inner, every, skipped))

    module = module_of(build, ((2, 4, 8, 8), "float32"))
    network = deliver(module)
    assert _moves(network) == []
    _check(network, module, _image(2, 4, 8, 8))


@st.composite
def _programs(draw: st.DrawFn) -> list[tuple[Any, ...]]:
    """Steps that take earlier values by number, counted from the last one."""
    earlier = st.integers(0, 3)
    step = st.one_of(
        st.tuples(st.just("conv"), earlier, st.integers(2, 12), st.sampled_from([1, 3])),
        st.tuples(st.just("relu"), earlier),
        st.tuples(st.just("pool"), earlier),
        st.tuples(st.just("concat"), st.lists(earlier, min_size=2, max_size=3)),
        st.tuples(st.just("split"), earlier, st.integers(1, 5)),
        st.tuples(st.just("slice"), earlier, st.integers(0, 2), st.integers(1, 3)),
        st.tuples(st.just("shuffle"), earlier),
    )
    return draw(st.lists(step, min_size=4, max_size=10))


def _built(program: list[tuple[Any, ...]]) -> Any:
    def build(emit: Any, x: Any) -> Any:
        values = [x, _conv(emit, x, 8)]

        def value(back: int) -> Any:
            return values[-1 - back % len(values)]

        for what, *of in program:
            first = value(of[0]) if isinstance(of[0], int) else None
            channels = 0 if first is None else int(first.ty.shape[1])
            if what == "conv":
                values.append(_conv(emit, first, of[1], of[2]))
            elif what == "relu":
                values.append(emit(op.nn.relu(first)))
            elif what == "pool":
                values.append(emit(op.nn.max_pool2d(first, (3, 3), (1, 1), (1, 1))))
            elif what == "concat":
                values.append(emit(op.concat([value(back) for back in of[0]], axis=1)))
            elif what == "split" and channels > of[1]:
                parts = emit(op.split(first, [of[1]], axis=1))
                values += [emit(parts[0]), emit(parts[1])]
            elif what == "slice" and channels > of[1] + of[2]:
                values.append(emit(op.strided_slice(first, [1], [of[1]], [of[1] + of[2]])))
            elif what == "shuffle" and channels % 2 == 0:
                batch, _, high, wide = (int(extent) for extent in first.ty.shape)
                grouped = emit(op.reshape(first, (batch, 2, channels // 2, high, wide)))
                turned = emit(op.permute_dims(grouped, [0, 2, 1, 3, 4]))
                values.append(emit(op.reshape(turned, (batch, channels, high, wide))))
        return tuple(values[-3:])

    return build


@settings(
    max_examples=8,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(_programs(), st.sampled_from(LAYOUTS), st.sampled_from([1, 2]), st.booleans())
def test_random_networks_compute_the_same(
    deliver: Any, program: list[tuple[Any, ...]], layout: str, batch: int, tuned: bool
):
    shape = (batch, 4, 6, 6)
    module = module_of(_built(program), (shape, "float32"))
    network = deliver(module, layout=layout, seed=0 if tuned else None)
    assert network.made.virtual_machine is None
    _check(network, module, _image(*shape))
