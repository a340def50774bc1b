"""Gathers, shapes and reductions of ONNX, drawn at random."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from attribute_draws import WHOLES, Draw, Families, Known, Operator, onnx_type


def _gather(d: Draw) -> Operator:
    shape, axis = d.shape(), 0
    axis = d.axis(shape)
    at = d.places(max(1, shape[axis]), d.wholes(d.whole(0, 3), 1, 4))
    return Operator([d.real(shape, d.number(*WHOLES, "bool")), at], {"axis": axis})


def _gather_elements(d: Draw) -> Operator:
    shape = d.wholes(d.whole(1, 4), 1, 5)
    axis = d.axis(shape)
    other = [d.whole(1, n) for n in shape]
    other[axis] = d.whole(1, 6)
    given = {"axis": d.some(axis, 0.8)}
    extent = shape[axis] if given["axis"] is not None else shape[0]
    return Operator([d.real(shape, d.number(*WHOLES, "bool")), d.places(extent, other)], given)


def _nd_places(d: Draw, shape: Sequence[int], batch: int, depth: int, unique: bool) -> Any:
    """Indices of the axes after those of the batch; unique ones if later ones must not win."""
    inside = shape[batch : batch + depth]
    free = d.wholes(d.whole(1, 2) - (batch > 0), 1, 3)
    count = math.prod(free) * math.prod(shape[:batch])
    size = math.prod(inside)
    if unique and count > size:
        free, count = [size], size
    flat = d.rng.permutation(size)[:count] if unique else d.rng.integers(0, size, count)
    at = np.stack(np.unravel_index(flat, inside), -1).reshape([*shape[:batch], *free, depth])
    return at - np.asarray(inside) * (d.rng.random(at.shape) < 0.3)


def _gather_nd(d: Draw) -> Operator:
    shape = d.wholes(d.whole(1, 4), 1, 4)
    batch = d.whole(0, min(2, len(shape) - 1))
    at = _nd_places(d, shape, batch, d.whole(1, len(shape) - batch), False)
    return Operator([d.real(shape, d.number(*WHOLES)), at], {"batch_dims": batch or None})


_REDUCTIONS = ("none", "add", "mul", "max", "min")


def _scatter_nd(d: Draw) -> Operator:
    shape, how = d.wholes(d.whole(1, 4), 1, 4), d.some(d.one(*_REDUCTIONS))
    depth = d.whole(1, len(shape))
    at = _nd_places(d, shape, 0, depth, how in {None, "none"})
    x = d.real(shape, d.number(*WHOLES[:3]))
    updates = d.real([*at.shape[:-1], *shape[depth:]], x.dtype.name)
    return Operator([x, at, updates], {"reduction": how})


def _scatter_elements(d: Draw) -> Operator:
    shape, how = d.wholes(d.whole(1, 4), 1, 5), d.some(d.one(*_REDUCTIONS))
    axis = d.axis(shape)
    other = [d.whole(1, n) for n in shape]
    at = d.places(shape[axis], other)
    if how in {None, "none"}:
        at = np.argsort(d.rng.random(other), axis=axis)
        at = at - shape[axis] * (d.rng.random(other) < 0.3)
    x = d.real(shape, d.number(*WHOLES[:3]))
    given = {"axis": axis, "reduction": how}
    return Operator([x, at, d.real(other, x.dtype.name)], given)


def _slice(d: Draw) -> Operator:
    shape = d.shape()
    axes = d.some(d.axes(shape), 0.7)
    count = len(shape) if axes is None else len(axes)
    starts, ends = d.wholes(count, -7, 7), d.wholes(count, -7, 7)
    starts = [d.one(n, n, n, -(2**31), 2**31 - 1) for n in starts]
    ends = [d.one(n, n, n, -(2**31), 2**31 - 1) for n in ends]
    steps = d.some([d.one(-3, -2, -1, 1, 1, 2, 3) for _ in range(count)], 0.7)
    kind = d.one("int64", "int32")
    parts = {"starts": starts, "ends": ends, "axes": axes, "steps": steps}
    made = [None if v is None else Known(v, name, kind) for name, v in parts.items()]
    return Operator([d.real(shape, d.number(*WHOLES, "bool")), *made])


def _pad(d: Draw) -> Operator:
    shape = d.wholes(d.whole(1, 5), 1, 5)
    axes = d.some(d.axes(shape), 0.3)
    low = d.one(0, 0, -1)
    pads = d.wholes(2 * len(shape if axes is None else axes), low, 3)
    x = d.real(shape, d.number(*WHOLES[:4], "bool"))
    value = d.some(Known(d.real([], x.dtype.name), "value", x.dtype.name))
    mode = d.some(d.one("constant", "reflect", "edge", "wrap"), 0.8)
    return Operator(
        [x, Known(pads, "pads"), value, None if axes is None else Known(axes)], {"mode": mode}
    )


def _concat(d: Draw) -> Operator:
    shape = d.shape()
    axis, kind = d.axis(shape), d.number(*WHOLES, "bool")
    shapes = [list(shape) for _ in range(d.whole(1, 4))]
    for one in shapes:
        one[axis] = d.whole(0 if d.yes(0.1) else 1, 4)
    return Operator([d.real(one, kind) for one in shapes], {"axis": axis})


def _split(d: Draw) -> Operator:
    shape = d.shape()
    axis, count = d.axis(shape), d.whole(1, 4)
    sizes = d.wholes(count, 0 if d.yes(0.2) else 1, 3)
    by_size = d.yes()
    shape[axis] = sum(sizes) if by_size else d.whole(1, 9)
    x = d.real(shape, d.number(*WHOLES[:3]))
    given = {"axis": d.some(axis, 0.9), "num_outputs": None if by_size else count}
    return Operator([x, Known(sizes, "split") if by_size else None], given, count)


def _tile(d: Draw) -> Operator:
    shape = d.shape()
    return Operator(
        [
            d.real(shape, d.number(*WHOLES[:4])),
            Known(d.wholes(len(shape), 0 if d.yes(0.1) else 1, 3)),
        ]
    )


def _expand(d: Draw) -> Operator:
    shape = d.wholes(d.whole(1, 4), 1, 4)
    wanted = [d.one(n, n, 1) for n in shape]
    return Operator([d.real(d.part(shape), d.number("int32", "bool")), Known(wanted)])


def _reshape(d: Draw) -> Operator:
    shape = d.shape(0, 4)
    order = [int(n) for n in d.rng.permutation(shape)] if shape else []
    cut = d.whole(0, len(order))
    wanted = [*order[:cut], 1, *order[cut:]]
    if wanted and d.yes():
        wanted = [*wanted[:cut], -1] if d.yes() else [*wanted[:cut], -1, *wanted[cut + 1 :]]
    wanted = [
        0 if a < len(shape) and n == shape[a] and d.yes(0.2) else n for a, n in enumerate(wanted)
    ]
    return Operator(
        [d.real(shape, d.number("int32")), Known(wanted, "shape")], {"allowzero": d.some(1, 0.1)}
    )


def _squeeze(d: Draw, un: bool) -> Operator:
    shape = [d.one(1, 2, 3) for _ in range(d.whole(1, 4))]
    if un:
        count = d.whole(1, 3)
        rank = len(shape) + count
        axes = [int(a) - rank * d.yes(0.4) for a in d.rng.permutation(rank)[:count]]
    else:
        ones = [a for a, n in enumerate(shape) if n == 1]
        axes = [a - len(shape) * d.yes(0.4) for a in ones if d.yes(0.7)] or None
    known = None if axes is None else Known(axes, "axes")
    return Operator([d.real(shape, d.number("int32", "bool")), known])


def _reverse(d: Draw) -> Operator:
    shape, time = d.wholes(d.whole(2, 4), 1, 5), d.whole(0, 1)
    lengths = d.rng.integers(1, shape[time] + 1, shape[1 - time])
    return Operator(
        [d.real(shape, d.number("int32")), lengths], {"time_axis": time, "batch_axis": 1 - time}
    )


def _one_hot(d: Draw) -> Operator:
    shape, depth = d.shape(0, 3), d.whole(1, 5)
    kind = d.one("float32", "int64", "int32", "bool", "float16")
    at = d.rng.integers(-depth - 1, depth + 2, shape).astype(d.one("int64", "int32", "float32"))
    values = Known(d.real([2], kind), "", kind)
    return Operator([at, Known(d.one(depth, [depth])), values], {"axis": d.some(d.axis(shape, 1))})


def _reduce(d: Draw, *whole: str) -> Operator:
    shape = d.shape(0, 4)
    axes = d.some(Known(d.axes(shape), "axes"), 0.8) if shape else None
    if axes is None and d.yes(0.1):
        axes = Known([], "axes")
    given = d.given("keepdims=0:1 noop_with_empty_axes=0:1@0.2")
    return Operator([d.real(shape, d.number(*whole)), axes], given)


def _extreme_place(d: Draw) -> Operator:
    shape = d.wholes(d.whole(1, 4), 1, 5)
    given = d.given("keepdims=0:1 select_last_index=0:1")
    return Operator([d.real(shape, d.number(*WHOLES))], {"axis": d.some(d.axis(shape)), **given})


def _top(d: Draw) -> Operator:
    shape = d.wholes(d.whole(1, 4), 1, 6)
    axis = d.axis(shape)
    x = d.real(shape, d.number(*WHOLES[:2]))
    given = {"axis": axis, "largest": d.some(d.whole(0, 1))}
    return Operator([x, Known([d.whole(1, shape[axis])], "k")], given, 2)


def _cumulative(d: Draw) -> Operator:
    shape = d.wholes(d.whole(1, 4), 1, 5)
    given = d.given("exclusive=0:1 reverse=0:1")
    return Operator([d.real(shape, d.number("int32", "int64")), Known(d.axis(shape))], given)


def _shaped(text: str) -> Callable[[Draw], Operator]:
    """An operator on one tensor with whole attributes."""

    def draw(d: Draw) -> Operator:
        given = d.given(text, 0.7)
        return Operator([d.real(d.shape(1, 4), d.number("int32"))], given)

    return draw


def _trilu(d: Draw) -> Operator:
    x = d.real(d.shape(2, 4), d.number(*WHOLES[:2], "bool"))
    return Operator([x, d.some(Known(d.whole(-4, 4)))], {"upper": d.some(d.whole(0, 1))})


def _transpose(d: Draw) -> Operator:
    shape = d.shape(1, 5)
    perm = [int(n) for n in d.rng.permutation(len(shape))]
    return Operator([d.real(shape, d.number(*WHOLES, "bool"))], {"perm": d.some(perm, 0.8)})


def _eye(d: Draw) -> Operator:
    kind = d.some(onnx_type(d.one("float32", "int64", "float16", "bool")))
    return Operator(
        [d.real(d.wholes(2, 1, 5), d.number("int32"))], {"k": d.some(d.whole(-3, 3)), "dtype": kind}
    )


def _compress(d: Draw) -> Operator:
    shape, axis = d.shape(), None
    axis = d.some(d.axis(shape))
    count = math.prod(shape) if axis is None else shape[axis]
    chosen = d.rng.integers(0, 2, d.whole(min(1, count), count))
    return Operator([d.real(shape, d.number("int32")), Known(chosen, "", "bool")], {"axis": axis})


_REDUCED = "Sum Mean Max Min Prod L1 L2 LogSum LogSumExp SumSquare"


FAMILIES: Families = {
    "gathers": {
        "Gather": _gather,
        "GatherElements": _gather_elements,
        "GatherND": _gather_nd,
        "ScatterElements": _scatter_elements,
        "ScatterND": _scatter_nd,
        "OneHot": _one_hot,
    },
    "shapes": {
        "Slice": _slice,
        "Pad": _pad,
        "Concat": _concat,
        "Split": _split,
        "Tile": _tile,
        "Expand": _expand,
        "Reshape": _reshape,
        "Squeeze": lambda d: _squeeze(d, False),
        "Unsqueeze": lambda d: _squeeze(d, True),
        "Transpose": _transpose,
        "Flatten": _shaped("axis=-3:3"),
        "Trilu": _trilu,
        "Compress": _compress,
        "EyeLike": _eye,
        "ReverseSequence": _reverse,
        "Shape": _shaped("start=-3:3 end=-3:3"),
    },
    "reductions": {
        **dict.fromkeys(
            [f"Reduce{name}" for name in _REDUCED.split()], lambda d: _reduce(d, "int32", "int64")
        ),
        # Neither library has logarithms of sums of whole numbers.
        "ReduceLogSumExp": _reduce,
        **dict.fromkeys(("ArgMax", "ArgMin"), _extreme_place),
        "TopK": _top,
        **dict.fromkeys(("CumSum", "CumProd"), _cumulative),
    },
}
