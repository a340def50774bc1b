"""Kernels with open axes compute a call's part of their outputs, and read nothing after it."""

import attrs
import numpy as np
import pytest
from chameleon_tvm._building.lowering import compile_function
from chameleon_tvm._device.targets import tvm_target
from chameleon_tvm._late_tvm import tvm
from chameleon_tvm._open_axes import (
    BATCH,
    INPUT_WIDTH,
    KEYS,
    QUERIES,
    WIDTH,
    OpenAxes,
    OpenAxis,
    image_axes,
    with_extent,
    with_open_axes,
)
from chameleon_tvm._operators.convolution_specs import Conv1dSpec, DepthwiseConv1dSpec
from chameleon_tvm.api import AttentionSpec, Conv2dSpec, DenseSpec
from computing import NATIVE, PROVIDER
from marks import full

WHOLE = 224
TOKENS = (1, 2, WHOLE, 32)
EXTENTS = {"input", "query", "key", "value", "mask"}

ROWS = (WIDTH, INPUT_WIDTH)

CASES = {
    "dense": (DenseSpec(input=[WHOLE, 64], units=48, bias=True, residual=True), ROWS),
    "dense in bfloat16": (
        DenseSpec(input=[WHOLE, 64], units=48, bias=True, dtype="bfloat16"),
        ROWS,
    ),
    "dense in int8": (DenseSpec(input=[WHOLE, 64], units=48, dtype="int8"), ROWS),
    "strided convolution": (
        Conv2dSpec(input=[WHOLE, 16, 7, 7], filters=32, kernel=3, stride=2, layout="NCHW"),
        (BATCH,),
    ),
    "convolution": (
        Conv2dSpec(input=[WHOLE, 16, 5, 5], filters=24, kernel=3, padding=1, layout="NHWC"),
        (BATCH,),
    ),
    "convolution along the length": (
        Conv1dSpec(input=[2, 32, WHOLE], filters=48, kernel=3, padding=1, bias=True),
        0,
    ),
    "strided convolution along the length": (
        Conv1dSpec(input=[1, 32, WHOLE], filters=48, kernel=5, stride=3, padding=2, layout="NWC"),
        0,
    ),
    "depthwise convolution along the length": (
        DepthwiseConv1dSpec(input=[1, 32, WHOLE], kernel=7, padding=3),
        0,
    ),
    "Winograd's convolution": (
        Conv2dSpec(input=[WHOLE, 16, 6, 10], filters=32, kernel=3, padding=1),
        (BATCH,),
    ),
    "1x1 convolution along rows": (
        Conv2dSpec(input=[1, 32, WHOLE, 7], filters=48, kernel=1, layout="NHWC"),
        0,
    ),
    "1x1 convolution along rows of planes": (
        Conv2dSpec(input=[2, 16, WHOLE, 7], filters=24, kernel=1, layout="NCHW"),
        0,
    ),
    "convolution along narrow rows": (
        Conv2dSpec(input=[1, 32, WHOLE, 7], filters=32, kernel=3, padding=1, layout="NHWC"),
        0,
    ),
    "convolution along rows": (
        Conv2dSpec(input=[1, 32, 6, WHOLE], filters=32, kernel=3, padding=1, layout="NHWC"),
        1,
    ),
    "convolution along columns": (
        Conv2dSpec(input=[1, 32, WHOLE, 6], filters=32, kernel=3, padding=1, stride=2),
        0,
    ),
    "attention": (
        AttentionSpec(query=TOKENS, key=TOKENS, value=TOKENS, mask=(1, 1, WHOLE, WHOLE)),
        (QUERIES, KEYS),
    ),
    "causal attention": (
        AttentionSpec(query=TOKENS, key=TOKENS, value=TOKENS, causal=True),
        (QUERIES, KEYS),
    ),
}


def part(array, extent):
    """The part of an array that a call with a smaller extent has."""
    return array[tuple(slice(extent) if size == WHOLE else slice(None) for size in array.shape)]


def poisoned(array, extent):
    """An array whose elements are NaN after this part, or the largest integers."""
    integers = array.dtype.kind in "iu"
    result = np.full_like(array, np.iinfo(array.dtype).max if integers else np.nan)
    part(result, extent)[...] = part(array, extent)
    return result


def axes_of(spec, opened):
    """The open axes of a case, and those of its output."""
    axis = OpenAxis(extent=WHOLE)
    if isinstance(opened, int):
        axes, out = image_axes(spec, opened, axis)
        return OpenAxes(axes=axes), out
    return OpenAxes(axes=dict.fromkeys(opened, axis)), axis


def outputs(function, arrays, buffer, *extent):
    """What a compiled function writes."""
    out = tvm.runtime.tensor(np.full(buffer[0], 7, buffer[1]))
    function["main"](*map(tvm.runtime.tensor, arrays), out, *extent)
    return out.numpy()


@pytest.mark.parametrize("name", ["dense", *map(full, [*CASES][1:])])
def test_a_call_computes_its_part_alone(name):
    spec, opened = CASES[name]
    axes, out = axes_of(spec, opened)
    builder = PROVIDER.builder(spec.task("t", NATIVE), threads=2)
    space = builder.space
    drawn = space.sample(300, np.random.default_rng(0)).tolist()
    # The first knobs, and where the input is read, choose the loops.
    kinds = {
        tuple(map(knobs.get, ("algorithm", "product_input", "product_positions", "input"))): config
        for config in drawn
        for knobs in [space.decode(config)]
    }
    for config in [*space.first_guesses[:2].tolist(), *drawn[:4], *kinds.values()]:
        with with_open_axes(axes):
            program = builder.program(config)
        assert len(with_extent(program.function, WHOLE)[0].params) == len(program.function.params)
        function, is_open = with_extent(program.function)
        assert is_open
        compiled = compile_function(function, tvm_target(NATIVE), plain_loops=True)
        constants = builder.operator.constants
        [buffer] = program.output_buffers
        for extent in (1, 5, 33, 96, WHOLE - 1, WHOLE):
            small = attrs.evolve(
                spec,
                **{
                    field: tuple(extent if size == WHOLE else size for size in getattr(spec, field))
                    for field in EXTENTS & {each.name for each in attrs.fields(type(spec))}
                },
            )
            fewer = PROVIDER.builder(small.task("t", NATIVE), threads=2)
            fewer.use(
                [
                    array if index in constants else part(array, extent)
                    for index, array in enumerate(builder.inputs)
                ]
            )
            [wanted], tolerance = fewer.reference()
            arrays = [
                array if index in constants else poisoned(array, extent)
                for index, array in enumerate(program.inputs)
            ]
            got = outputs(compiled, arrays, buffer, extent)
            [logical] = program.unpack([got])
            called = logical[tuple(map(slice, wanted.shape))]
            error = np.abs(called - wanted).max()
            assert error <= tolerance * np.abs(wanted).max(), (space.decode(config), extent)
            # The last tile of a call may be longer than the call.
            rest = [
                slice(out.of(extent) + 128, None) if size == out.extent else slice(None)
                for size in buffer[0]
            ]
            assert (got[tuple(rest)] == 7).all(), (space.decode(config), extent)


def test_a_fixed_extent_computes_all():
    spec, opened = CASES["dense"]
    axes, _ = axes_of(spec, opened)
    builder = PROVIDER.builder(spec.task("t", NATIVE), threads=2)
    with with_open_axes(axes):
        program = builder.program(builder.space.first_guesses[0].tolist())
    function, is_open = with_extent(program.function, WHOLE)
    compiled = compile_function(function, tvm_target(NATIVE), plain_loops=True)
    got = outputs(compiled, program.inputs, program.output_buffers[0])
    [wanted], tolerance = builder.reference()
    assert not is_open
    assert np.abs(program.unpack([got])[0] - wanted).max() <= tolerance * np.abs(wanted).max()
