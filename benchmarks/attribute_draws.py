"""Operators of ONNX with random attributes, shapes and dtypes, for ``attribute_cases.py``.

A function of ``FAMILIES`` draws the inputs and the attributes of an operator. It may draw what the
standard does not take, which is then drawn again. Extents are small, and numbers of quantization
are powers of two, so that no rounding decides on an answer.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import ml_dtypes  # noqa: F401 - NumPy knows bfloat16 and types of eight bits by it
import numpy as np
from onnx import helper

FLOATS = ("float32", "float32", "float32", "float32", "float64", "float16")
WHOLES = ("int64", "int32", "int8", "uint8", "int16", "uint16", "uint32", "uint64")


@attrs.frozen
class Known:
    """An input that is a constant of the model; in versions that have it so, an attribute."""

    value: Any
    name: str = ""
    kind: str = "int64"


@attrs.define
class Operator:
    """An operator that was drawn.

    Attributes:
        inputs: arrays, ``Known`` ones, or None for what is left out.
        attributes: by name; None for what is left out.
        outputs: how many are named.
    """

    inputs: Sequence[Any]
    attributes: Mapping[str, Any] = attrs.field(factory=dict)
    outputs: int = 1


class Draw:
    """Draws values of a case."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def one(self, *values: Any) -> Any:
        """One of some values."""
        return values[self.rng.integers(len(values))]

    def yes(self, share: float = 0.5) -> bool:
        """Whether something happens."""
        return bool(self.rng.random() < share)

    def some(self, value: Any, share: float = 0.5) -> Any:
        """A value, or None."""
        return value if self.yes(share) else None

    def whole(self, low: int, high: int) -> int:
        """A whole number; both bounds are possible."""
        return int(self.rng.integers(low, high + 1))

    def wholes(self, count: int, low: int, high: int) -> list[int]:
        """Several of them."""
        return [self.whole(low, high) for _ in range(count)]

    def given(self, text: str, share: float = 0.5) -> dict[str, Any]:
        """Attributes, each left out at random: ``name=low:high``, or ``name=a|b`` for one of some.

        Args:
            text: the attributes; ``@0.3`` after one is how likely the case has it.
            share: how likely that is for others.
        """
        made = {}
        for word in text.split():
            name, _, values = word.partition("=")
            values, _, likely = values.partition("@")
            low, _, high = values.partition(":")
            of = values.split("|")
            value = self.whole(int(low), int(high)) if high else _plain(self.one(*of))
            made[name] = self.some(value, float(likely or share))
        return made

    def shape(self, low: int = 1, high: int = 4) -> list[int]:
        """A shape of some axes, rarely an empty one."""
        shape = self.wholes(self.whole(low, high), 1, 5)
        return [0 if self.yes(0.02) else extent for extent in shape]

    def axis(self, shape: Sequence[int], more: int = 0) -> int:
        """An axis, often counted from the end."""
        return self.whole(-len(shape) - more, len(shape) - 1 + more)

    def axes(self, shape: Sequence[int]) -> list[int]:
        """Several axes, some of them counted from the end."""
        axes = self.rng.permutation(len(shape))[: self.whole(1, len(shape))]
        return [int(axis) - len(shape) * self.yes(0.4) for axis in axes]

    def real(self, shape: Sequence[int], kind: str = "float32") -> Any:
        """Numbers about zero; of whole types those that all such have."""
        if kind == "bool":
            return self.rng.integers(0, 2, shape).astype(kind)
        if np.dtype(kind).kind in "iu":
            return self.rng.integers(0 if kind[0] == "u" else -9, 10, shape).astype(kind)
        return np.asarray(self.rng.normal(size=shape)).astype(kind)

    def number(self, *more: str) -> str:
        """A dtype that most operators take."""
        return str(self.one(*FLOATS, *more))

    def places(self, extent: int, shape: Sequence[int], *, negative: bool = True) -> Any:
        """Indices of an axis."""
        low = -extent if negative and self.yes() else 0
        return self.rng.integers(low, extent, shape).astype(self.one("int64", "int32"))

    def part(self, shape: Sequence[int]) -> list[int]:
        """A shape that is broadcast to another one."""
        kept = shape[self.whole(0, len(shape)) :]
        return [self.one(1, extent, extent) for extent in kept]

    def scales(self, shape: Sequence[int]) -> Any:
        """Powers of two."""
        return (2.0 ** self.rng.integers(-5, -1, shape)).astype(np.float32)


def _plain(word: str) -> Any:
    try:
        return ast.literal_eval(word)
    except ValueError:
        return word


def _type(name: str) -> int:
    return helper.np_dtype_to_tensor_dtype(np.dtype(name))


def _window(d: Draw, rank: int, *, dilated: bool = True, ceil: bool = False) -> dict[str, Any]:
    way = d.one("NOTSET", "NOTSET", "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")
    return {
        "strides": d.some(d.wholes(rank, 1, 3), 0.7),
        "dilations": d.some(d.wholes(rank, 1, 3)) if dilated else None,
        "auto_pad": d.some(way),
        "pads": d.some(d.wholes(2 * rank, 0, 2), 0.7) if way == "NOTSET" else None,
        "ceil_mode": d.some(d.whole(0, 1)) if ceil else None,
    }


def _image(d: Draw, channels: int, rank: int, high: int = 9) -> list[int]:
    return [d.whole(1, 2), channels, *d.wholes(rank, 2, high if rank < 3 else 5)]


def _conv(d: Draw, kind: str = "", transposed: bool = False) -> Operator:
    rank, groups = d.one(1, 2, 2, 2, 3), d.one(1, 1, 2, 3)
    inside, outside = groups * d.whole(1, 3), groups * d.whole(1, 3)
    kernel = d.wholes(rank, 1, 3)
    kind = kind or d.number()
    x = d.real(_image(d, inside, rank), kind)
    around = (inside, outside // groups) if transposed else (outside, inside // groups)
    given = {**_window(d, rank), "group": groups, "kernel_shape": d.some(kernel)}
    if transposed:
        given["output_padding"] = d.some(d.wholes(rank, 0, 2), 0.4)
        steps = given["strides"] or [1] * rank
        size = [n * step + d.whole(-1, 2) for n, step in zip(x.shape[2:], steps, strict=True)]
        if d.yes(0.2):
            given |= {"output_shape": size, "pads": None}
    return Operator([x, d.real([*around, *kernel], kind), d.some(d.real([outside], kind))], given)


def _pool(d: Draw, text: str, outputs: int = 1, whole: Sequence[str] = ()) -> Operator:
    rank = d.one(1, 2, 2, 2, 3)
    kernel = d.wholes(rank, 1, 3)
    given: dict[str, Any] = {"kernel_shape": kernel, **_window(d, rank, ceil=True), **d.given(text)}
    x = d.real(_image(d, d.whole(1, 3), rank), d.number(*whole))
    # Each window has a part of the image.
    most = {"pads": [n - 1 for n in kernel * 2], "dilations": x.shape[2:]}
    for name, bounds in most.items():
        values = [min(pair) for pair in zip(given[name] or (), bounds, strict=False)]
        given[name] = values or None
    if str(given["auto_pad"]).startswith("SAME"):
        # The reference and onnxruntime pad with other numbers than the standard has then.
        given["dilations"] = None
    return Operator([x], given, outputs)


def _deformed(d: Draw) -> Operator:
    groups, shares, taps = d.one(1, 2), d.one(1, 2), d.wholes(2, 1, 3)
    channels = groups * shares * d.whole(1, 2)
    x = d.real(_image(d, channels, 2))
    steps, spread, pads = d.wholes(2, 1, 2), d.wholes(2, 1, 2), d.wholes(4, 0, 2)
    out = [
        (n + pads[a] + pads[a + 2] - (taps[a] - 1) * spread[a] - 1) // steps[a] + 1
        for a, n in enumerate(x.shape[2:])
    ]
    count = shares * math.prod(taps)
    maps = groups * d.whole(1, 2)
    return Operator(
        [
            x,
            d.real([maps, channels // groups, *taps]),
            d.real([len(x), 2 * count, *out]),
            d.some(d.real([maps])),
            d.some(d.real([len(x), count, *out])),
        ],
        {
            "strides": steps,
            "dilations": spread,
            "pads": pads,
            "group": groups,
            "offset_group": shares,
        },
    )


def _unpool(d: Draw) -> Operator:
    rank = d.one(1, 2)
    kernel, steps, pads = d.wholes(rank, 1, 3), d.wholes(rank, 1, 3), d.wholes(2 * rank, 0, 1)
    x = d.real(_image(d, d.whole(1, 2), rank, 4))
    size = [
        (n - 1) * steps[a] - pads[a] - pads[rank + a] + kernel[a] for a, n in enumerate(x.shape[2:])
    ]
    count = max(x.size, math.prod([*x.shape[:2], *size]))
    places = d.rng.permutation(count)[: x.size].reshape(x.shape)
    return Operator([x, places], {"kernel_shape": kernel, "strides": steps, "pads": pads})


def _columns(d: Draw) -> Operator:
    rank = d.one(1, 2, 2)
    image, block = d.wholes(rank, 3, 8), d.wholes(rank, 1, 3)
    steps, spread, pads = d.wholes(rank, 1, 3), d.wholes(rank, 1, 2), d.wholes(2 * rank, 0, 2)
    counts = [
        (n + pads[a] + pads[rank + a] - (block[a] - 1) * spread[a] - 1) // steps[a] + 1
        for a, n in enumerate(image)
    ]
    x = d.real([d.whole(1, 2), d.whole(1, 2) * math.prod(block), max(0, math.prod(counts))])
    given = {"strides": steps, "dilations": spread, "pads": pads}
    return Operator([x, Known(image), Known(block)], given)


def _resize(d: Draw) -> Operator:
    rank = d.one(1, 2, 3, 4, 4, 4, 5)
    shape = d.wholes(rank, 1, 6)
    kind = d.number("uint8", "int8", "int32")
    axes = d.some(sorted({axis % rank for axis in d.axes(shape)}), 0.3)
    resized = [*range(rank)] if axes is None else axes
    if axes is None and rank > 2 and d.yes(0.7):
        scales = [1.0, 1.0, *(d.one(0.5, 0.6, 1.0, 1.5, 2.0, 2.6, 3.0) for _ in shape[2:])]
    else:
        scales = [d.one(0.5, 0.7, 1.0, 1.5, 2.0, 2.6) for _ in resized]
    mode = d.one("nearest", "linear", "cubic")
    if mode != "nearest" and "int" in kind:
        # Halves of whole numbers are rounded as the digits that got lost decide.
        scales = [2.0 if scale > 1 else 0.5 if scale < 1 else 1.0 for scale in scales]
    sizes = [max(1, int(shape[a] * s)) for a, s in zip(resized, scales, strict=True)]
    by_size, roi = d.yes(0.4), d.yes(0.15)
    # With scales, the reference takes extents of crops that are no whole numbers.
    by_size = by_size or roi
    way = d.one(
        *("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"),
        *("half_pixel_symmetric", "tf_half_pixel_for_nn"),
    )
    region = [d.one(0.0, 0.2) for _ in resized] + [d.one(0.7, 1.0, 1.2) for _ in resized]
    given = {
        "mode": d.some(mode, 0.9),
        "coordinate_transformation_mode": "tf_crop_and_resize" if roi else d.some(way, 0.8),
        "nearest_mode": d.some(d.one("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")),
        "cubic_coeff_a": d.some(d.one(-0.5, -0.75)),
        "exclude_outside": d.some(d.whole(0, 1), 0.3) if mode == "cubic" else None,
        "extrapolation_value": d.some(1.5),
        "antialias": d.some(1, 0.15) if mode != "nearest" else None,
        "axes": axes,
        "keep_aspect_ratio_policy": d.some(d.one("not_larger", "not_smaller"), 0.2 * by_size),
    }
    return Operator(
        [
            d.real(shape, kind),
            Known(region, "", "float32") if roi else None,
            None if by_size else Known(scales, "", "float32"),
            Known(sizes) if by_size else None,
        ],
        given,
    )


def _regions(d: Draw) -> Operator:
    x = d.real(_image(d, d.whole(1, 2), 2, 8), d.number())
    count = d.whole(1, 3)
    starts = d.rng.uniform(-1, 4, (count, 2))
    boxes = np.concatenate([starts, starts + d.rng.uniform(0.5, 6, (count, 2))], 1)
    places = d.rng.integers(0, len(x), count)
    given = d.given(
        """
        mode=avg|max output_height=1:4 output_width=1:4 sampling_ratio=0:3@0.8
        spatial_scale=0.5|1.0|2.0 coordinate_transformation_mode=half_pixel|output_half_pixel
        """
    )
    return Operator([x, boxes.astype(x.dtype), places], given)


def _grid(d: Draw) -> Operator:
    rank = d.one(2, 2, 3)
    x = d.real(_image(d, d.whole(1, 2), rank, 6), d.number())
    grid = d.rng.uniform(-1.3, 1.3, [len(x), *d.wholes(rank, 1, 4), rank]).astype(x.dtype)
    given = "mode=linear|nearest|cubic|bilinear|bicubic padding_mode=zeros|border|reflection"
    return Operator([x, grid], {**d.given(given, 0.8), **d.given("align_corners=0:1")})


def _affine(d: Draw) -> Operator:
    rank = d.one(2, 3)
    size = [d.whole(1, 2), d.whole(1, 3), *d.wholes(rank, 1, 4)]
    theta = d.real([size[0], rank, rank + 1])
    return Operator([theta, Known(size)], d.given("align_corners=0:1"))


def _blocks(d: Draw, mode: bool) -> Operator:
    block = d.whole(1, 3)
    shape = [d.whole(1, 2), d.whole(1, 2) * block**2, d.whole(1, 3) * block, d.whole(1, 3) * block]
    given = {"blocksize": block, "mode": d.some(d.one("DCR", "CRD")) if mode else None}
    return Operator([d.real(shape, d.number("int32", "uint8"))], given)


def _crop(d: Draw) -> Operator:
    shape = d.shape()
    axes = d.some(d.axes(shape))
    sizes = d.wholes(len(shape) if axes is None else len(axes), 1, 7)
    return Operator([d.real(shape, d.number("int32")), Known(sizes)], {"axes": axes})


_FUNCTIONS = (
    "Relu Tanh Sigmoid LeakyRelu HardSigmoid Elu Softsign Softplus",
    "Affine ScaledTanh HardSigmoid",
)
"""Activations without numbers, and with two of them."""


def _recurrent(d: Draw, name: str) -> Operator:
    gates, functions = {"LSTM": (4, 3), "GRU": (3, 2), "RNN": (1, 1)}[name]
    ways = d.one("forward", "reverse", "bidirectional")
    count = 1 + (ways == "bidirectional")
    steps, batch, width, hidden = (d.whole(1, 4) for _ in range(4))
    layout = d.one(0, 0, 0, 1)
    kind = "float64" if d.yes(0.1) else "float32"
    state = [batch, count, hidden] if layout else [count, batch, hidden]
    # Without numbers of their own, onnxruntime has other defaults than the standard for some.
    numbered = d.yes(0.3)
    names = [d.one(*_FUNCTIONS[numbered].split()) for _ in range(functions * count)]
    numbers = [[d.one(0.2, 0.7, 1.3) for _ in names] if numbered else None for _ in range(2)]
    inputs = [
        d.real([batch, steps, width] if layout else [steps, batch, width], kind),
        d.real([count, gates * hidden, width], kind),
        d.real([count, gates * hidden, hidden], kind),
        d.some(d.real([count, 2 * gates * hidden], kind)),
        d.some(d.rng.integers(1, steps + 1, batch).astype(np.int32), 0.3),
        d.some(d.real(state, kind)),
    ]
    if name == "LSTM":
        inputs += [d.some(d.real(state, kind)), d.some(d.real([count, 3 * hidden], kind), 0.3)]
    given = {
        "hidden_size": hidden,
        "direction": d.some(ways, 0.3) if ways == "forward" else ways,
        "layout": layout or None,
        "linear_before_reset": d.some(d.whole(0, 1)) if name == "GRU" else None,
    }
    more: dict[str, Any] = d.given("clip=0.5|1.0@0.3")
    if numbered or d.yes(0.3):
        more |= {"activations": names}
        more |= dict(zip(("activation_alpha", "activation_beta"), numbers, strict=True))
    if name == "LSTM":
        more |= d.given("input_forget=0:1@0.2")
    if layout or kind == "float64":
        # The reference ignores these, and onnxruntime has neither this layout nor this dtype.
        more, inputs[4] = {}, None
    return Operator(inputs, given | more, d.whole(1, 3 if name == "LSTM" else 2))


def _attention(d: Draw) -> Operator:
    keys, shared, batch = d.whole(1, 2), d.whole(1, 2), d.whole(1, 2)
    heads, steps, length, size, wide = keys * shared, d.whole(1, 4), d.whole(1, 5), 4, d.one(4, 6)
    kind = d.number()
    flat, past = d.yes(), d.whole(1, 3) if d.yes(0.3) else 0

    def of(count: int, extent: int, width: int) -> Any:
        return d.real(
            [batch, extent, count * width] if flat else [batch, count, extent, width], kind
        )

    inputs = [of(heads, steps, size), of(keys, length, size), of(keys, length, wide)]
    shape = d.one([steps, length + past], [batch, 1, steps, length + past])
    mask = d.one(None, None, True, False)
    inputs.append(None if mask is None else d.real(shape, "bool" if mask else kind))
    if past:
        inputs += [d.real([batch, keys, past, n], kind) for n in (size, wide)]
    elif d.yes(0.2):
        inputs += [None, None, d.rng.integers(1, length + 1, batch)]
    given = d.given("is_causal=0:1 scale=0.4 softcap=2.0@0.3 qk_matmul_output_mode=0:3")
    given |= {"q_num_heads": heads, "kv_num_heads": keys} if flat else {}
    given |= d.given("left_window_size=0:2@0.15")
    return Operator(inputs, given, d.one(1, 1, 3, 4))


def _rotary(d: Draw) -> Operator:
    batch, heads, steps, size, most = d.whole(1, 2), d.whole(1, 3), d.whole(1, 4), d.one(4, 8), 6
    part = d.some(d.one(2, 4), 0.4)
    half, flat, by_place = (part or size) // 2, d.yes(), d.yes()
    kind = d.number()
    caches = [d.real([most, half] if by_place else [batch, steps, half], kind) for _ in range(2)]
    x = d.real([batch, steps, heads * size] if flat else [batch, heads, steps, size], kind)
    places = d.rng.integers(0, most, (batch, steps)) if by_place else None
    given = {"rotary_embedding_dim": part, "num_heads": heads if flat else None}
    return Operator([x, *caches, places], {**d.given("interleaved=0:1"), **given})


def _channels(d: Draw, name: str) -> Operator:
    """A normalisation with numbers for each channel."""
    groups = d.whole(1, 3)
    channels = groups * d.whole(1, 2) if name == "GroupNormalization" else d.whole(1, 4)
    x = d.real([d.whole(1, 3), channels, *d.wholes(d.one(1, 2, 3), 1, 5)], d.number())
    own = [d.real([channels], x.dtype) for _ in range(3)]
    given: dict[str, Any] = {"epsilon": d.some(1e-2)}
    outputs = 1
    if name == "BatchNormalization":
        own.append(np.abs(d.real([channels], x.dtype)) + np.asarray(0.1, x.dtype))
        training = d.some(1, 0.3)
        given |= {"momentum": d.some(0.7), "training_mode": training}
        outputs = 3 if training else 1
    else:
        own = own[:2]
    if name == "GroupNormalization":
        given["num_groups"] = groups
    return Operator([x, *own], given, outputs)


def _layer(d: Draw, name: str) -> Operator:
    x = d.real(d.wholes(d.whole(1, 4), 1, 5), d.number())
    axis = d.axis(x.shape)
    shape = x.shape[axis:] if d.yes(0.8) else d.part(x.shape[axis:])
    own = [d.real(shape, x.dtype)]
    if name == "LayerNormalization":
        own.append(d.some(d.real(shape, x.dtype)))
    outputs = d.one(1, 1, 3) if name == "LayerNormalization" else 1
    return Operator([x, *own], {"axis": axis, "epsilon": d.some(1e-2)}, outputs)


def _lrn(d: Draw) -> Operator:
    given = {"size": d.whole(1, 5), "alpha": d.some(0.3), "beta": d.some(0.5), "bias": d.some(2.0)}
    # The reference takes the number of images for that of channels.
    channels = d.whole(1, 6)
    shape = [channels, channels, *d.wholes(2, 1, 4)]
    return Operator([d.real(shape, d.number())], given)


def _along(text: str = "") -> Callable[[Draw], Operator]:
    """A function of numbers along an axis."""

    def draw(d: Draw) -> Operator:
        shape = d.shape()
        given = d.given(text)
        return Operator([d.real(shape, d.number())], {"axis": d.some(d.axis(shape)), **given})

    return draw


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


def _einsum(d: Draw) -> Operator:
    extents = {letter: d.whole(1, 4) for letter in "abcde"}
    terms, dots = [], d.yes(0.2)
    for _ in range(d.one(1, 2, 2, 3)):
        letters = [d.one(*"abcde") for _ in range(d.whole(1, 3))]
        terms.append("".join(letters) if d.yes(0.15) else "".join(dict.fromkeys(letters)))
    shapes = [[extents[letter] for letter in term] for term in terms]
    used = sorted(set("".join(terms)))
    kept = "".join(str(one) for one in d.rng.permutation(used)[: d.whole(0, len(used))])
    if dots:
        terms, shapes = [f"...{one}" for one in terms], [[2, *one] for one in shapes]
        kept = f"...{kept}"
    left = d.one(",", ", ").join(terms)
    equation = left if d.yes(0.15) else f"{left}{d.one('->', ' -> ')}{kept}"
    kind = d.number("int32")
    return Operator([d.real(shape, kind) for shape in shapes], {"equation": equation})


def _gemm(d: Draw) -> Operator:
    (m, k, n), kind = d.wholes(3, 1, 5), d.number("int32")
    over, under = d.whole(0, 1), d.whole(0, 1)
    a, b = d.real([k, m] if over else [m, k], kind), d.real([n, k] if under else [k, n], kind)
    c = d.some(d.real(d.one([], [1], [n], [m, 1], [1, n], [m, n]), kind))
    given = d.given("alpha=0.5|2.0 beta=0.5|2.0")
    return Operator([a, b, c], {**given, "transA": over, "transB": under})


def _products(d: Draw) -> tuple[list[int], list[int]]:
    m, k, n = d.wholes(3, 1, 5)
    batch = d.wholes(d.whole(0, 2), 1, 3)
    left, right = [*d.part(batch), m, k], [*d.part(batch), k, n]
    return (left, [k]) if d.yes(0.15) else ([k], right) if d.yes(0.15) else (left, right)


def _matmul(d: Draw) -> Operator:
    kind = d.number("int32", "int64")
    return Operator([d.real(shape, kind) for shape in _products(d)])


def _bytes(d: Draw, shape: Sequence[int], kind: str) -> Any:
    info = np.iinfo(kind)
    return d.rng.integers(info.min, info.max + 1, shape).astype(kind)


def _integer_matmul(d: Draw) -> Operator:
    (left, right), kinds = _products(d), [d.one("int8", "uint8") for _ in range(2)]
    rows = d.one([], [left[-2]]) if len(left) > 1 else []
    columns = d.one([], [right[-1]]) if len(right) > 1 else []
    zeros = [d.some(_bytes(d, *pair)) for pair in zip((rows, columns), kinds, strict=True)]
    return Operator([_bytes(d, left, kinds[0]), _bytes(d, right, kinds[1]), *zeros])


def _integer_conv(d: Draw) -> Operator:
    made = _conv(d)
    kinds = d.one("int8", "uint8"), d.one("int8", "uint8")
    x, w = (_bytes(d, made.inputs[a].shape, kinds[a]) for a in range(2))
    zeros = d.some(_bytes(d, [], kinds[0])), d.some(_bytes(d, d.one([], [len(w)]), kinds[1]))
    return Operator([x, w, *zeros], made.attributes)


def _quantized_conv(d: Draw) -> Operator:
    made = _conv(d)
    kinds = d.one(("int8", "int8"), ("uint8", "uint8"), ("uint8", "int8"))
    x, w = (_bytes(d, made.inputs[a].shape, kinds[a]) for a in range(2))
    scales = d.one([], [len(w)])
    zero = np.zeros(scales, kinds[1]) if kinds[1] == "int8" else _bytes(d, scales, kinds[1])
    bias = d.some(d.rng.integers(-500, 500, len(w)).astype(np.int32))
    last = [d.scales([]) * np.float32(64), _bytes(d, [], kinds[0]), bias]
    quantized = [x, d.scales([]), _bytes(d, [], kinds[0]), w, d.scales(scales), zero]
    return Operator([*quantized, *last], made.attributes)


def _quantized_matmul(d: Draw) -> Operator:
    kinds = [d.one("int8", "uint8") for _ in range(3)]
    inputs = []
    for shape, kind in zip(_products(d), kinds, strict=False):
        inputs += [_bytes(d, shape, kind), d.scales([]), _bytes(d, [], kind)]
    return Operator([*inputs, d.scales([]) * np.float32(64), _bytes(d, [], kinds[2])])


_QUANTIZED = ("int8", "uint8", "int8", "uint8", "int16", "uint16", "int4", "uint4", "float8_e4m3fn")


def _parameters(d: Draw, shape: Sequence[int]) -> tuple[list[int], dict[str, Any]]:
    """The shape of scales, and the attributes that go with it."""
    axis, how = d.axis(shape), d.one("tensor", "axis", "block")
    block = d.whole(1, shape[axis])
    extents = list(shape)
    extents[axis] = -(-shape[axis] // block)
    if how == "block":
        return extents, {"axis": axis, "block_size": block}
    return ([shape[axis]], {"axis": axis}) if how == "axis" else ([], {})


def _quantize(d: Draw) -> Operator:
    shape, kind = d.wholes(d.whole(1, 4), 1, 5), d.one(*_QUANTIZED)
    extents, given = _parameters(d, shape)
    x = (d.real(shape) * np.float32(4)).astype(d.one("float32", "float32", "float16"))
    zero = np.asarray(d.rng.integers(0, 5, extents)).astype(kind)
    zero = np.zeros(extents, kind) if kind.startswith("float") else zero
    named = d.yes(0.3)
    given["output_dtype"] = _type(kind) if named else None
    return Operator([x, d.scales(extents).astype(x.dtype), None if named else zero], given)


def _dequantize(d: Draw) -> Operator:
    shape, kind = d.wholes(d.whole(1, 4), 1, 5), d.one(*_QUANTIZED, "int32")
    extents, given = _parameters(d, shape)
    low = -8 if kind.startswith(("int", "float")) else 0
    x, zero = (d.rng.integers(low, 8, n).astype(kind) for n in (shape, extents))
    zero = d.some(np.zeros(extents, kind) if kind in {"int32", "float8_e4m3fn"} else zero)
    return Operator([x, d.scales(extents).astype(d.one("float32", "float16")), zero], given)


_CASTS = (
    "float32",
    "float64",
    "float16",
    "bfloat16",
    "float8_e4m3fn",
    "float8_e5m2",
    *WHOLES,
    "bool",
    "int4",
)


def _cast(d: Draw, like: bool = False) -> Operator:
    source, kind = d.one(*_CASTS), d.one(*_CASTS)
    low, high = (0 if "u" in source + kind or "bool" in source + kind else -8), 7
    x = np.asarray(d.rng.uniform(low, high, d.shape(0, 3))).astype(source)
    if like:
        return Operator([x, np.zeros([1], kind)])
    return Operator([x], {"to": _type(kind), "saturate": d.some(d.whole(0, 1), 0.2)})


def _fourier(d: Draw) -> Operator:
    shape = [*d.wholes(d.whole(2, 3), 1, 6), d.one(1, 2)]
    axis = d.one(*range(len(shape) - 1))
    given = d.given("inverse=0:1 onesided=0:1")
    length = d.some(Known(d.whole(1, 8)))
    known = Known(axis - len(shape) * d.yes())
    return Operator([d.real(shape, d.one("float32", "float64")), length, known], given)


def _short_fourier(d: Draw) -> Operator:
    length, frame = d.whole(6, 12), d.whole(2, 6)
    x = d.real([d.whole(1, 2), length, 1])
    window = d.some(d.real([frame]))
    size = Known(frame) if window is None or d.yes() else None
    given = {"onesided": d.some(d.whole(0, 1))}
    return Operator([x, Known(d.whole(1, 3)), window, size], given)


def _loss(d: Draw, log: bool) -> Operator:
    classes, rest = d.whole(2, 4), d.wholes(d.whole(0, 2), 1, 3)
    batch = d.whole(1, 3)
    ignored = d.some(d.whole(-1, classes - 1))
    targets = d.rng.integers(0, classes, [batch, *rest])
    targets = np.where(d.rng.random(targets.shape) < 0.2, ignored or 0, targets)
    given = {"reduction": d.some(d.one("none", "mean", "sum")), "ignore_index": ignored}
    weights = d.some(np.abs(d.real([classes])) + np.float32(0.1))
    outputs = d.whole(1, 2) if log else 1
    return Operator([d.real([batch, classes, *rest]), targets, weights], given, outputs)


def _scatter_rows(d: Draw) -> Operator:
    batch, heads, most, size = d.whole(1, 3), d.whole(1, 2), d.whole(2, 5), d.whole(1, 3)
    count, mode = d.whole(1, most), d.some(d.one("linear", "circular"))
    begins = d.rng.integers(0, (most if mode == "circular" else most - count) + 1, batch)
    begins = np.minimum(begins, most - 1)
    x = d.real([batch, heads, most, size])
    return Operator([x, d.real([batch, heads, count, size]), d.some(begins)], {"mode": mode})


def _alone(text: str = "", *more: str, count: int = 1) -> Callable[[Draw], Operator]:
    """Numbers one by one, of some more dtypes, and of several tensors that are broadcast."""

    def draw(d: Draw) -> Operator:
        shape, kind = d.shape(0, 4), d.number(*more)
        shapes = [d.part(shape) if d.yes(0.4) else shape for _ in range(count)]
        given = d.given(text, 0.7)
        return Operator([d.real(one, kind) for one in shapes], given)

    return draw


def _mixed_power(d: Draw) -> Operator:
    shape = d.shape(0, 3)
    base, exponent = (d.one("float32", "float64", "int32", "int64", "float16") for _ in range(2))
    x = d.rng.integers(1, 5, shape).astype(base)
    return Operator([x, d.rng.integers(0, 4, d.part(shape)).astype(exponent)])


def _divided(d: Draw, name: str) -> Operator:
    shape, kind = d.shape(0, 4), d.number(*WHOLES)
    y = d.real(d.part(shape), kind)
    y = np.where(y == 0, np.asarray(1, kind), y)
    fmod = np.dtype(kind).kind == "f" or d.yes() if name == "Mod" else None
    return Operator([d.real(shape, kind), y], {"fmod": None if fmod is None else int(fmod)})


def _shifted(d: Draw) -> Operator:
    shape, kind = d.shape(0, 3), d.one("uint8", "uint16", "uint32", "uint64")
    y = d.rng.integers(0, 10, d.part(shape)).astype(kind)
    return Operator([d.real(shape, kind), y], {"direction": d.one("LEFT", "RIGHT")})


def _where(d: Draw) -> Operator:
    shape, kind = d.shape(0, 4), d.number(*WHOLES, "bool")
    x, y = (d.real(d.part(shape), kind) for _ in range(2))
    return Operator([d.real(d.part(shape), "bool"), x, y])


def _clip(d: Draw) -> Operator:
    kind = d.number(*WHOLES)
    low, high = (
        d.some(Known(d.real([], kind), "min", kind)),
        d.some(Known(d.real([], kind), "max", kind)),
    )
    return Operator([d.real(d.shape(0, 4), kind), low, high])


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
    kind = d.some(_type(d.one("float32", "int64", "float16", "bool")))
    return Operator(
        [d.real(d.wholes(2, 1, 5), d.number("int32"))], {"k": d.some(d.whole(-3, 3)), "dtype": kind}
    )


def _upsample(d: Draw) -> Operator:
    shape = d.wholes(d.one(3, 4, 4, 5), 1, 5)
    scales = [1.0, 1.0, *(d.one(1.0, 1.5, 2.0, 3.0) for _ in shape[2:])]
    inputs = [d.real(shape, d.number()), Known(scales, "scales", "float32")]
    return Operator(inputs, {"mode": d.some(d.one("nearest", "linear"))})


def _compress(d: Draw) -> Operator:
    shape, axis = d.shape(), None
    axis = d.some(d.axis(shape))
    count = math.prod(shape) if axis is None else shape[axis]
    chosen = d.rng.integers(0, 2, d.whole(min(1, count), count))
    return Operator([d.real(shape, d.number("int32")), Known(chosen, "", "bool")], {"axis": axis})


def _bits(d: Draw) -> Operator:
    kinds = d.one(
        ("float32", "int32"), ("int64", "float64"), ("uint8", "int8"), ("uint16", "int16")
    )
    source, kind = d.one(kinds, kinds[::-1])
    return Operator([d.real(d.shape(0, 3), source)], {"to": _type(kind)})


def _determinant(d: Draw) -> Operator:
    size = d.whole(1, 4)
    return Operator([d.real([*d.wholes(d.whole(0, 2), 1, 3), size, size], d.number())])


def _variance(d: Draw) -> Operator:
    x = d.real(_image(d, d.whole(1, 3), d.whole(1, 2), 4))
    return Operator([x], {"axes": d.some([axis % x.ndim for axis in d.axes(x.shape)], 0.6)})


def _global(text: str = "") -> Callable[[Draw], Operator]:
    def draw(d: Draw) -> Operator:
        given = d.given(text)
        return Operator([d.real(_image(d, d.whole(1, 3), d.whole(1, 3), 5), d.number())], given)

    return draw


_REDUCED = "Sum Mean Max Min Prod L1 L2 LogSum LogSumExp SumSquare"
_BINARY = "Add Sub Mul Equal Less LessOrEqual Greater GreaterOrEqual"

FAMILIES: Mapping[str, Mapping[str, Callable[[Draw], Operator]]] = {
    "convolutions": {
        "Conv": _conv,
        "ConvTranspose": lambda d: _conv(d, transposed=True),
        "DeformConv": _deformed,
        "Col2Im": _columns,
    },
    "pools": {
        "MaxPool": lambda d: _pool(d, "storage_order=0:1", d.one(1, 1, 2), ("uint8", "int8")),
        "AveragePool": lambda d: _pool(d, "count_include_pad=0:1"),
        "LpPool": lambda d: _pool(d, "p=1:3"),
        "MaxUnpool": _unpool,
        "GlobalLpPool": _global("p=1:3"),
        "GlobalAveragePool": _global(),
        "GlobalMaxPool": _global(),
    },
    "images": {
        "Resize": _resize,
        "Upsample": _upsample,
        "RoiAlign": _regions,
        "GridSample": _grid,
        "AffineGrid": _affine,
        "DepthToSpace": lambda d: _blocks(d, True),
        "SpaceToDepth": lambda d: _blocks(d, False),
        "CenterCropPad": _crop,
    },
    "recurrent": {
        name: lambda d, name=name: _recurrent(d, name) for name in ("LSTM", "GRU", "RNN")
    },
    "attention": {
        "Attention": _attention,
        "RotaryEmbedding": _rotary,
        "TensorScatter": _scatter_rows,
    },
    "normalisation": {
        **{
            f"{name}Normalization": lambda d, name=f"{name}Normalization": _channels(d, name)
            for name in ("Batch", "Instance", "Group")
        },
        **{
            f"{name}Normalization": lambda d, name=f"{name}Normalization": _layer(d, name)
            for name in ("Layer", "RMS")
        },
        "LRN": _lrn,
        "MeanVarianceNormalization": _variance,
        "LpNormalization": _along("p=1:2"),
        **dict.fromkeys(("Softmax", "LogSoftmax", "Hardmax"), _along()),
    },
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
    "products": {"MatMul": _matmul, "Gemm": _gemm, "Einsum": _einsum, "Det": _determinant},
    "quantized": {
        "QuantizeLinear": _quantize,
        "DequantizeLinear": _dequantize,
        "DynamicQuantizeLinear": lambda d: Operator([d.real(d.shape(1, 4))], {}, 3),
        "MatMulInteger": _integer_matmul,
        "ConvInteger": _integer_conv,
        "QLinearConv": _quantized_conv,
        "QLinearMatMul": _quantized_matmul,
    },
    "signals, losses": {
        "DFT": _fourier,
        "STFT": _short_fourier,
        "NegativeLogLikelihoodLoss": lambda d: _loss(d, False),
        "SoftmaxCrossEntropyLoss": lambda d: _loss(d, True),
    },
    "elementwise": {
        "Cast": _cast,
        "BitCast": _bits,
        "CastLike": lambda d: _cast(d, True),
        "Where": _where,
        "Clip": _clip,
        "Pow": _mixed_power,
        "Div": lambda d: _divided(d, "Div"),
        "Mod": lambda d: _divided(d, "Mod"),
        "BitShift": _shifted,
        "PRelu": _alone("", "int32", count=2),
        "LeakyRelu": _alone("alpha=0.2|1.5|-0.5"),
        **dict.fromkeys(("Elu", "Celu"), _alone("alpha=0.2|2.0")),
        "Selu": _alone("alpha=0.5|2.0 gamma=0.5|2.0"),
        "HardSigmoid": _alone("alpha=0.1|0.5 beta=0.2|0.7"),
        "ThresholdedRelu": _alone("alpha=0.2|-0.5"),
        "Shrink": _alone("lambd=0.2|1.0 bias=0.3|1.0"),
        "Gelu": _alone("approximate=none|tanh"),
        "Swish": _alone("alpha=0.5|2.0"),
        "IsInf": _alone("detect_positive=0|1 detect_negative=0|1"),
        **dict.fromkeys(("Max", "Min"), lambda d: _alone("", *WHOLES, count=d.whole(1, 3))(d)),
        "Mean": lambda d: _alone(count=d.whole(1, 3))(d),
        **dict.fromkeys(_BINARY.split(), _alone("", *WHOLES, count=2)),
        **dict.fromkeys(("Abs", "Neg", "Sign"), _alone("", "int32", "int8")),
        **dict.fromkeys(("Round", "Floor", "Ceil", "Erf", "Softplus", "Mish"), _alone()),
    },
}
"""Draws an operator's inputs and attributes, by family and operator."""
