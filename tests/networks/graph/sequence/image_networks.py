"""Pieces of networks of images, NCHW, that tests put together by hand and at random."""

import numpy as np
from chameleon_networks._graph.relax_utils import relax

from ...modules import expected, module_of  # noqa: TID252 - shared by folders

op = relax.op


def conv(emit, x, filters, size=1, groups=1):
    channels = int(x.ty.shape[1]) // groups
    rng = np.random.default_rng([filters, size, channels])
    weights = rng.standard_normal((filters, channels, size, size), np.float32)
    scaled = relax.const(weights / np.float32(size * np.sqrt(channels)))
    return emit(op.nn.conv2d(x, scaled, padding=size // 2, groups=groups))


def shuffle(emit, x, groups):
    batch, channels, *spatial = (int(extent) for extent in x.ty.shape)
    grouped = emit(op.reshape(x, (batch, groups, channels // groups, *spatial)))
    turned = emit(op.permute_dims(grouped, [0, 2, 1, 3, 4]))
    return emit(op.reshape(turned, (batch, channels, *spatial)))


def unit(emit, x):
    """One of ShuffleNet v2: a half passes, the other is computed, and both are mixed."""
    halves = emit(op.split(x, 2, axis=1))
    passed, read = emit(halves[0]), emit(halves[1])
    half = int(read.ty.shape[1])
    inner = emit(op.nn.relu(conv(emit, read, half)))
    computed = emit(op.nn.relu(conv(emit, conv(emit, inner, half, 3, half), half)))
    return shuffle(emit, emit(op.concat([passed, computed], axis=1)), 2)


def image(*shape):
    return np.random.default_rng(0).standard_normal(shape, np.float32)


def check(network, module, *inputs):
    """The delivered network computes what the module does."""
    outputs = network.run(*inputs)
    for output, other in zip(
        outputs if isinstance(outputs, list) else [outputs], expected(module, *inputs), strict=True
    ):
        assert output.shape == other.shape
        scale = max(float(np.abs(other).max(initial=0.0)), 1e-3)
        np.testing.assert_allclose(output, other, atol=2e-5 * scale, rtol=0)


def correct(deliver, build, shape, **options):
    """A delivered network of images in float32, which computes what its module does."""
    module = module_of(build, shape)
    network = deliver(module, **options)
    check(network, module, image(*shape))
    return network


def values_of(emit, program, first):
    """Some values, and those that a program makes of them."""
    values = list(first)

    def value(back):
        return values[-1 - back % len(values)]

    for what, *of in program:
        if what == "concat":
            values.append(emit(op.concat([value(back) for back in of[0]], axis=1)))
        else:
            values += _step(emit, what, value(of[0]), *of[1:])
    return values


def _step(emit, what, x, *of):
    """What one step makes of one value; nothing where it has too few channels."""
    channels = int(x.ty.shape[1])
    results = []
    if what == "conv":
        results = [conv(emit, x, *of)]
    elif what == "depthwise" and channels > 1:
        results = [conv(emit, x, channels, 3, channels)]
    elif what == "relu":
        results = [emit(op.nn.relu(x))]
    elif what == "pool":
        results = [emit(op.nn.max_pool2d(x, (3, 3), (1, 1), (1, 1)))]
    elif what == "unit" and channels % 2 == 0 and channels > 2:
        results = [unit(emit, x)]
    elif what == "split" and channels > of[0]:
        parts = emit(op.split(x, [of[0]], axis=1))
        results = [emit(parts[0]), emit(parts[1])]
    elif what == "slice" and channels > of[0] + of[1]:
        results = [emit(op.strided_slice(x, [1], [of[0]], [of[0] + of[1]]))]
    elif what == "shuffle" and channels % of[0] == 0:
        results = [shuffle(emit, x, of[0])]
    return results
