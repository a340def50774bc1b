"""Convolutions of tile products compute the integers of the reference, tiles being loops."""

import re
from functools import partial

import attrs
import computing
import numpy as np
import pytest
from chameleon_tvm._building.lowering import compile_function
from chameleon_tvm._device.targets import target_info, tvm_target
from chameleon_tvm._instructions.amx import AmxBfloat16, AmxFloat16, AmxInt8
from chameleon_tvm._instructions.emission import permissions_of
from chameleon_tvm._operators.base import operator_of
from chameleon_tvm._operators.convolution_specs import Conv1dSpec, Conv3dSpec
from chameleon_tvm._quick_tvm import tvm
from chameleon_tvm._spaces.template import tile_algorithm
from chameleon_tvm._spaces.template.algorithms import Layer
from chameleon_tvm._spaces.template.convolution import geometry_of
from chameleon_tvm._spaces.template.options import ALGORITHM, TemplateOptions
from chameleon_tvm._spaces.template.provider import template_of
from chameleon_tvm._spaces.template.tile_algorithm import TileAlgorithm
from chameleon_tvm._spaces.template.tile_tiling import TILE_PRODUCTS, Runs
from chameleon_tvm.api import Conv2dSpec, DenseSpec
from chameleon_tvm.testing.instructions import require_meaning, trials_of
from chameleon_tvm.testing.loop_tiles import LoopTiles
from computing import NATIVE, PROVIDER, X86, assembly_of, few, resolved, wide_convolutions
from hypothesis import given
from hypothesis import strategies as st
from marks import full

SAPPHIRE = resolved(f"{X86}sapphirerapids -num-cores=2")
GRANITE = resolved(f"{X86}graniterapids -num-cores=2")
INT8 = {"dtype": "int8", "output_dtype": "uint8"}
BIASED = {"dtype": "bfloat16", "bias": True}
BF16 = {**BIASED, "residual": True, "activation": "relu"}
LAYER = Conv2dSpec(input=[1, 64, 14, 14], filters=64, kernel=3, padding=1, layout="NHWC", **INT8)
FEW = few(8)
TYPES = st.sampled_from([INT8, {**INT8, "output_dtype": "float32"}, BIASED])
FINISHES = st.fixed_dictionaries(
    {"residual": st.booleans(), "activation": st.sampled_from(["none", "relu", "relu6"])}
)


@pytest.fixture(autouse=True, scope="module")
def loops():
    """This machine's CPU has tiles, which are loops."""
    chosen = tile_algorithm.tile_products_of

    def found(target, **types):
        kinds = {"bfloat16": AmxBfloat16, "float16": AmxFloat16}
        product = kinds.get(types["data"], AmxInt8)()
        return [LoopTiles(product)] if target == NATIVE else chosen(target, **types)

    tile_algorithm.tile_products_of = found
    yield
    tile_algorithm.tile_products_of = chosen


def tiled(space, count, seed):
    """Legal configurations of tile products: the first guess of them, and random ones."""
    drawn = space.sample(400, np.random.default_rng(seed))
    result = [
        config
        for config in [*space.first_guesses, *drawn]
        if space.decode(config)[ALGORITHM] == TILE_PRODUCTS
    ]
    return [result[0], *result[len(result) - count :]]


check = partial(computing.check, chosen=tiled, rounded=["bfloat16", "float16"])


@pytest.mark.parametrize("product", [AmxInt8, AmxBfloat16, AmxFloat16], ids=lambda one: one.name)
def test_tiles_that_are_loops_compute_what_the_instruction_means(product):
    one = LoopTiles(product())
    for trial in trials_of(one, frozenset()):
        operands = trial.operands()
        arguments = [tvm.runtime.tensor(array) for array in trial.arguments(operands)]
        compile_function(trial.function(), tvm_target(NATIVE), plain_loops=True)["main"](*arguments)
        require_meaning(trial, operands, arguments[-1].numpy(), where=product.name)


@pytest.mark.full
@FEW
@given(wide_convolutions(TYPES, FINISHES), st.integers(0, 1000))
def test_convolutions(spec, seed):
    check(spec, seed)


@pytest.mark.full
@pytest.mark.parametrize(
    "spec",
    [
        LAYER,
        Conv2dSpec(
            input=[1, 128, 7, 7], filters=96, kernel=1, layout="NHWC", residual=True, **INT8
        ),
        Conv2dSpec(input=[1, 64, 9, 30], filters=33, kernel=1, stride=2, layout="NHWC", **INT8),
        Conv2dSpec(input=[1, 3, 20, 20], filters=32, kernel=7, stride=2, padding=3, **INT8),
        Conv2dSpec(input=[1, 48, 9, 9], filters=40, kernel=3, padding=1, **BF16),
        Conv2dSpec(input=[1, 3, 19, 19], filters=20, kernel=5, padding=2, layout="NHWC", **BF16),
        DenseSpec(input=[20, 96], units=70, bias=True, activation="gelu", dtype="bfloat16"),
        DenseSpec(input=[20, 96], units=70, bias=True, activation="relu", dtype="float16"),
        DenseSpec(input=[20, 100], units=70, activation="relu", **INT8),
        DenseSpec(input=[1, 64], units=10, **INT8),
        Conv1dSpec(input=[2, 48, 40], filters=50, kernel=5, padding=2, **INT8),
    ],
    ids=lambda spec: f"{spec.kind}-{spec.dtype}-{spec.sizes}",
)
def test_layers(spec):
    check(spec, 0, count=2)


def test_orders_of_blocks_have_the_same_outputs(monkeypatch):
    small = attrs.evolve(target_info(NATIVE), l2_bytes=24_000)
    monkeypatch.setattr(tile_algorithm, "target_info", lambda target: small)
    spec = Conv2dSpec(input=[2, 64, 9, 16], filters=48, kernel=3, layout="NHWC", **INT8)
    task = spec.task("orders", NATIVE)
    space = PROVIDER.design_space(task)
    builder = PROVIDER.builder(task, threads=2)
    order = space.index["product_outermost"]
    names = space.knobs[order].values
    assert list(names) == ["channels", "positions", "panels"]
    for config in tiled(space, 1, 0):
        configs = [[*config[:order], number, *config[order + 1 :]] for number in range(len(names))]
        expected, *outputs = (builder.build(one).outputs()[0] for one in configs)
        assert all(np.array_equal(expected, output) for output in outputs)


def test_an_input_without_padding_may_be_read_where_it_is():
    def inputs(**more):
        sizes = {"input": [1, 64, 7, 7], "filters": 64, "kernel": 1, "layout": "NHWC"}
        spec = Conv2dSpec(**{**sizes, **more}, **INT8)
        space = PROVIDER.design_space(spec.task("t", NATIVE))
        (knob,) = [knob for knob in space.knobs if knob.name == "product_input"]
        return list(knob.values)

    assert inputs() == ["copy", "in_place"]
    assert inputs(kernel=3) == ["copy", "in_place"]
    assert inputs(input=[1, 48, 7, 7]) == ["copy", "in_place"]
    # Padding holds what stands for zero, and 37 channels are filled up with zeros.
    assert inputs(kernel=3, padding=1) == ["copy"]
    assert inputs(input=[1, 37, 7, 7]) == ["copy"]
    assert inputs(layout="NCHW") == ["copy"]


def test_what_tiles_do_not_fit_is_computed_directly():
    volume = Conv3dSpec(input=[1, 8, 4, 4, 4], filters=8, kernel=3, padding=1, **INT8)
    grouped = Conv2dSpec(input=[1, 64, 8, 8], filters=64, kernel=3, groups=2, **INT8)
    for spec in (volume, grouped):
        for target in (NATIVE, SAPPHIRE):
            space = PROVIDER.design_space(spec.task("t", target))
            assert not [knob for knob in space.knobs if knob.name == "product_pixels"]


def test_registers_are_never_more_than_there_are():
    space = PROVIDER.design_space(LAYER.task("t", SAPPHIRE))
    for config in tiled(space, 40, 0):
        v = space.decode(config)
        tiles, vectors = v["product_strips"] * v["product_rows"], v["product_vectors"]
        assert tiles * vectors + 2 < AmxInt8.registers


def test_a_first_guess_multiplies_four_tiles_with_four_loads():
    space = PROVIDER.design_space(LAYER.task("t", SAPPHIRE))
    values = space.decode(space.first_guesses[0])
    assert values[ALGORITHM] == TILE_PRODUCTS
    assert values["product_pixels"] == 14
    assert values["product_strips"] * values["product_rows"] == 2
    assert values["product_vectors"] == 2


@pytest.mark.parametrize(
    ("channels", "kernel", "found"),
    [
        *((64, 3, (64, 3, 64)), (48, 1, (48, 1, 48)), (3, 7, (4, 1, 28))),
        *((144, 1, (144, 3, 48)), (37, 1, (40, 1, 40))),
    ],
)
def test_pieces_of_a_run_are_equal_and_few(channels, kernel, found):
    spec = Conv2dSpec(input=[1, channels, 9, 9], filters=16, kernel=kernel, layout="NHWC", **INT8)
    geometry = geometry_of(spec, 16)
    layer = Layer(
        geometry=geometry, direct=geometry, spec=spec, target=SAPPHIRE, options=TemplateOptions()
    )
    tiles = TileAlgorithm.of(layer)
    runs = Runs.of(tiles.geometry, tiles.product)
    assert (tiles.geometry.ic, runs.pieces, runs.depth) == found


def test_what_lies_beside_a_run_is_not_read():
    """Products with it would be NaN, whatever the weight."""
    spec = Conv2dSpec(input=[1, 5, 6, 40], filters=16, kernel=3, layout="NHWC", dtype="bfloat16")
    builder = PROVIDER.builder(spec.task("t", NATIVE), threads=2)
    data, weights = builder.inputs
    broken = data.copy()
    broken[0, 0, 0, 20] = np.nan
    builder.use([broken, weights])
    (got,) = builder.build(tiled(builder.space, 0, 0)[0].tolist()).outputs()
    assert np.argwhere(np.isnan(got).any(axis=(0, 1))).tolist() == [[0, 18], [0, 19], [0, 20]]


@pytest.mark.parametrize(
    ("types", "mnemonic", "target"),
    [
        (INT8, "tdpbusd", SAPPHIRE),
        (BF16, "tdpbf16ps", SAPPHIRE),
        ({**BF16, "dtype": "float16"}, "tdpfp16ps", GRANITE),
    ],
)
def test_compiled_for_amx_each_part_sets_its_tiles_up_and_releases_them(types, mnemonic, target):
    sizes = {"input": [1, 64, 14, 14], "filters": 64, "kernel": 3, "padding": 1}
    task = Conv2dSpec(**sizes, layout="NHWC", **types).task("t", target)
    template, operator = template_of(task), operator_of(task)
    space = template.space()
    config = next(row for row in tiled(space, 1, 0))
    function = template.program(space.decode(config), operator, operator.inputs()).function
    assert permissions_of(function) == {"amx"}
    text = assembly_of(function, target)
    (body,) = [row for row in text.split("@function") if mnemonic in row]
    assert re.findall("ldtilecfg|tilerelease", body) == ["ldtilecfg", "tilerelease"]
    assert body.index("ldtilecfg") < body.index(mnemonic) < body.index("tilerelease")


@pytest.mark.parametrize(
    "spec",
    [
        full(
            Conv2dSpec(input=[2, 32, 7, 7], filters=48, kernel=3, padding=1, layout="NHWC", **BF16)
        ),
        Conv2dSpec(input=[1, 24, 9, 7], filters=20, kernel=(3, 2), padding=(1, 0, 0, 1), **BF16),
        full(
            Conv2dSpec(input=[1, 64, 7, 7], filters=33, kernel=3, padding=1, layout="NHWC", **INT8)
        ),
    ],
    ids=lambda spec: f"{spec.dtype}-{spec.sizes}",
)
def test_rows_of_narrow_images_are_one_row(spec):
    def joined(space, count, seed):
        rows = space.sample(2000, np.random.default_rng(seed))
        mine = [row for row in rows if space.decode(row).get("product_positions") == "image"]
        assert len(mine) >= count
        return mine[:count]

    computing.check(spec, seed=1, count=3, chosen=joined, rounded=["bfloat16"])


@pytest.mark.parametrize(
    ("size", "stride", "joins"),
    [((7, 7), 1, True), ((14, 14), 1, False), ((7, 7), 2, False), ((1, 9), 1, False)],
)
def test_rows_are_joined_if_that_saves_tiles(size, stride, joins):
    spec = Conv2dSpec(
        input=[1, 64, *size], filters=64, kernel=3, padding=1, stride=stride, layout="NHWC", **BF16
    )
    names = {knob.name for knob in PROVIDER.design_space(spec.task("t", SAPPHIRE)).knobs}
    assert ("product_positions" in names) == joins
