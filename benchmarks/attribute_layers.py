"""Convolutions, pools, images, recurrent layers, attention and normalisation, drawn at random."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from attribute_draws import Draw, Families, Known, Operator


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


def convolution(d: Draw, kind: str = "", transposed: bool = False) -> Operator:
    """A convolution of a dtype, any floating-point one by default."""
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


def _scatter_rows(d: Draw) -> Operator:
    batch, heads, most, size = d.whole(1, 3), d.whole(1, 2), d.whole(2, 5), d.whole(1, 3)
    count, mode = d.whole(1, most), d.some(d.one("linear", "circular"))
    begins = d.rng.integers(0, (most if mode == "circular" else most - count) + 1, batch)
    begins = np.minimum(begins, most - 1)
    x = d.real([batch, heads, most, size])
    return Operator([x, d.real([batch, heads, count, size]), d.some(begins)], {"mode": mode})


def _upsample(d: Draw) -> Operator:
    shape = d.wholes(d.one(3, 4, 4, 5), 1, 5)
    scales = [1.0, 1.0, *(d.one(1.0, 1.5, 2.0, 3.0) for _ in shape[2:])]
    inputs = [d.real(shape, d.number()), Known(scales, "scales", "float32")]
    return Operator(inputs, {"mode": d.some(d.one("nearest", "linear"))})


def _variance(d: Draw) -> Operator:
    x = d.real(_image(d, d.whole(1, 3), d.whole(1, 2), 4))
    return Operator([x], {"axes": d.some([axis % x.ndim for axis in d.axes(x.shape)], 0.6)})


def _global(text: str = "") -> Callable[[Draw], Operator]:
    def draw(d: Draw) -> Operator:
        given = d.given(text)
        return Operator([d.real(_image(d, d.whole(1, 3), d.whole(1, 3), 5), d.number())], given)

    return draw


FAMILIES: Families = {
    "convolutions": {
        "Conv": convolution,
        "ConvTranspose": lambda d: convolution(d, transposed=True),
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
}
