"""Channel shuffles move nothing where kernels can look channels up, and numbers stay the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from chameleon_tvm.graph.relaxed import relax
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .conftest import Delivered, expected, module_of

op = relax.op
MOVES = ("concat", "split", "slice", "shuffle", "fused_concat", "fused_split")


def _conv(emit: Any, x: Any, filters: int, size: int = 1, groups: int = 1) -> Any:
    channels = int(x.ty.shape[1]) // groups
    rng = np.random.default_rng([filters, size, channels])
    weights = rng.standard_normal((filters, channels, size, size), np.float32)
    scaled = relax.const(weights / np.float32(size * np.sqrt(channels)))
    return emit(op.nn.conv2d(x, scaled, padding=size // 2, groups=groups))


def _shuffle(emit: Any, x: Any, groups: int) -> Any:
    batch, channels, *spatial = (int(extent) for extent in x.ty.shape)
    grouped = emit(op.reshape(x, (batch, groups, channels // groups, *spatial)))
    turned = emit(op.permute_dims(grouped, [0, 2, 1, 3, 4]))
    return emit(op.reshape(turned, (batch, channels, *spatial)))


def _unit(emit: Any, x: Any) -> Any:
    """One of ShuffleNet v2: a half passes, the other is computed, and both are mixed."""
    halves = emit(op.split(x, 2, axis=1))
    kept, read = emit(halves[0]), emit(halves[1])
    half = int(read.ty.shape[1])
    inner = emit(op.nn.relu(_conv(emit, read, half)))
    made = emit(op.nn.relu(_conv(emit, _conv(emit, inner, half, 3, half), half)))
    return _shuffle(emit, emit(op.concat([kept, made], axis=1)), 2)


def _moves(network: Delivered) -> list[str]:
    return [name for name in network.kernels if name.startswith(MOVES)]


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


@pytest.mark.parametrize("channels", [20, 58])
@pytest.mark.parametrize("batch", [1, 2])
def test_a_stage_of_units_moves_nothing(deliver: Any, channels: int, batch: int):
    def build(emit: Any, x: Any) -> Any:
        x = _shuffle(emit, emit(op.concat([_conv(emit, x, channels)] * 2, axis=1)), 2)
        for _ in range(4):
            x = _unit(emit, x)
        return _conv(emit, x, 24)

    module = module_of(build, ((batch, 8, 6, 7), "float32"))
    network = deliver(module, layout="NHWC", guesses=True)
    assert _moves(network) == []
    looked_up = [call for call in network.made.executable.sequence.calls if call.lookups]
    assert len(looked_up) == 5, "the first convolution of each unit, and the last one"
    _check(network, module, _image(batch, 8, 6, 7))


def test_who_cannot_look_up_gets_one_copy(deliver: Any):
    def build(emit: Any, x: Any) -> Any:
        x = emit(op.concat([_conv(emit, x, 12), _conv(emit, x, 20, 3)], axis=1))
        x = _unit(emit, _shuffle(emit, x, 2))
        pooled = emit(op.nn.max_pool2d(x, (3, 3), (2, 2), (1, 1)))
        return _conv(emit, pooled, 8), _conv(emit, x, 8, 3, 8)

    module = module_of(build, ((1, 8, 6, 6), "float32"))
    network = deliver(module, layout="NHWC", guesses=True)
    assert _moves(network) == ["shuffle_of_some_of_1x6x6x32_float32"]
    _check(network, module, _image(1, 8, 6, 6))


def test_callers_own_what_they_pass_and_get(deliver: Any):
    def build(emit: Any, x: Any) -> Any:
        made = _conv(emit, x, 4)
        mixed = _shuffle(emit, emit(op.concat([x, made], axis=1)), 4)
        return made, mixed, _conv(emit, mixed, 5)

    module = module_of(build, ((2, 4, 5, 5), "float32"))
    for layout in ("NCHW", "NHWC"):
        network = deliver(module, layout=layout, guesses=True)
        for seed in (0, 1):
            x = np.random.default_rng(seed).standard_normal((2, 4, 5, 5), np.float32)
            _check(network, module, x)


def test_what_would_be_looked_up_too_often_is_moved(deliver: Any):
    def build(emit: Any, x: Any) -> Any:
        return _conv(emit, _shuffle(emit, _conv(emit, x, 16), 2), 512)

    module = module_of(build, ((1, 8, 6, 6), "float32"))
    network = deliver(module, layout="NHWC", guesses=True)
    assert sum("shuffle" in name for name in network.kernels) == 1
    assert "_of_some_of_" not in "".join(network.kernels)
    assert not any(call.lookups for call in network.made.executable.sequence.calls)
    _check(network, module, _image(1, 8, 6, 6))


def test_untuned_networks_shuffle_with_a_kernel(deliver: Any):
    def build(emit: Any, x: Any) -> Any:
        return _conv(emit, _unit(emit, _conv(emit, x, 16)), 8)

    module = module_of(build, ((1, 8, 6, 6), "float32"))
    _check(deliver(module, layout="NHWC"), module, _image(1, 8, 6, 6))


def _sizes(least: int, most: int) -> st.SearchStrategy[int]:
    return st.integers(least, most)


@st.composite
def _programs(draw: st.DrawFn) -> list[tuple[Any, ...]]:
    """Steps that take earlier values by number, counted from the last one."""
    earlier = _sizes(0, 4)
    step = st.one_of(
        st.tuples(st.just("conv"), earlier, _sizes(2, 12), st.sampled_from([1, 1, 3])),
        st.tuples(st.just("depthwise"), earlier),
        st.tuples(st.just("relu"), earlier),
        st.tuples(st.just("pool"), earlier),
        st.tuples(st.just("unit"), earlier),
        st.tuples(st.just("concat"), st.lists(earlier, min_size=2, max_size=3)),
        st.tuples(st.just("split"), earlier, _sizes(1, 7)),
        st.tuples(st.just("slice"), earlier, _sizes(0, 3), _sizes(1, 5)),
        st.tuples(st.just("shuffle"), earlier, _sizes(2, 4)),
        st.tuples(st.just("shuffle"), earlier, _sizes(2, 4)),
    )
    return draw(st.lists(step, min_size=4, max_size=12))


def _step(emit: Any, what: str, x: Any, *of: int) -> list[Any]:
    """What one step makes of one value; nothing where it has too few channels."""
    channels = int(x.ty.shape[1])
    made: list[Any] = []
    if what == "conv":
        made = [_conv(emit, x, *of)]
    elif what == "depthwise" and channels > 1:
        made = [_conv(emit, x, channels, 3, channels)]
    elif what == "relu":
        made = [emit(op.nn.relu(x))]
    elif what == "pool":
        made = [emit(op.nn.max_pool2d(x, (3, 3), (1, 1), (1, 1)))]
    elif what == "unit" and channels % 2 == 0 and channels > 2:
        made = [_unit(emit, x)]
    elif what == "split" and channels > of[0]:
        parts = emit(op.split(x, [of[0]], axis=1))
        made = [emit(parts[0]), emit(parts[1])]
    elif what == "slice" and channels > of[0] + of[1]:
        made = [emit(op.strided_slice(x, [1], [of[0]], [of[0] + of[1]]))]
    elif what == "shuffle" and channels % of[0] == 0:
        made = [_shuffle(emit, x, of[0])]
    return made


def _built(program: list[tuple[Any, ...]]) -> Any:
    def build(emit: Any, x: Any) -> Any:
        values = [x, _conv(emit, x, 12)]

        def value(back: int) -> Any:
            return values[-1 - back % len(values)]

        for what, *of in program:
            if what == "concat":
                values.append(emit(op.concat([value(back) for back in of[0]], axis=1)))
            else:
                values += _step(emit, what, value(of[0]), *of[1:])
        read = [_conv(emit, one, 3) for one in values[-3:]]
        return (*read, values[-1])

    return build


@settings(
    max_examples=8,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(_programs(), st.sampled_from(["NHWC", "NHWC", "NCHW"]), st.sampled_from([1, 2]))
def test_random_regions_compute_the_same(
    deliver: Any, program: list[tuple[Any, ...]], layout: str, batch: int
):
    shape = (batch, 4, 5, 6)
    module = module_of(_built(program), (shape, "float32"))
    network = deliver(module, layout=layout, guesses=True)
    assert network.made.virtual_machine is None
    _check(network, module, _image(*shape))
