"""Float32 convolutions and products by tiles of bfloat16, tiles being loops on every CPU."""

import math

import attrs
import numpy as np
import pytest
from chameleon_tvm._building.kernel import TVMKernel
from chameleon_tvm._device.targets import target_info
from chameleon_tvm._instructions.amx import AmxBfloat16
from chameleon_tvm._instructions.emission import permissions_of
from chameleon_tvm._operators.convolution_specs import Conv1dSpec, Conv3dSpec
from chameleon_tvm._spaces.template import split_algorithm
from chameleon_tvm._spaces.template.convolution import geometry_of
from chameleon_tvm._spaces.template.options import ALGORITHM, SPLIT_PARTS, TemplateOptions
from chameleon_tvm._spaces.template.provider import TemplateSpace, template_of
from chameleon_tvm._spaces.template.split_algorithm import SplitArithmetic, split_error
from chameleon_tvm._spaces.template.tile_tiling import panel_pixels
from chameleon_tvm._types import BFLOAT16, STORAGE
from chameleon_tvm.api import Conv2dSpec, DenseSpec
from chameleon_tvm.testing.loop_tiles import LoopTiles
from computing import EPILOGUES, NATIVE, X86, assembly_of, few, resolved, wide_convolutions
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from marks import full

SAPPHIRE = resolved(f"{X86}sapphirerapids -num-cores=2")
ERRORS = {"split3": 1.5e-5, "split6": 6e-7}
"""Largest accepted errors of small layers, beside which those of float32 are up to 5e-7."""
PRODUCTS = {"split3": 3.1e-5, "split6": 1e-6}
"""Largest errors of a product over its size, the sum's rounding included."""
FINISHED = {"bias": True, "residual": True, "activation": "relu"}


@pytest.fixture(autouse=True, scope="module")
def loops():
    """This machine's CPU has tiles, which are loops."""
    chosen = split_algorithm.tile_products_of

    def products(target, **types):
        return [LoopTiles(AmxBfloat16())] if target == NATIVE else chosen(target, **types)

    split_algorithm.tile_products_of = products
    yield
    split_algorithm.tile_products_of = chosen


def options_of(*names, **more):
    return TemplateOptions(algorithms=names, **more)


def splits(space, count, seed, *, name, form=None):
    """Legal configurations of an algorithm, with a form of the input."""
    rows = [*space.first_guesses, *space.sample(400, np.random.default_rng(seed))]
    values = [space.decode(row) for row in rows]
    mine = [
        row
        for row, chosen in zip(rows, values, strict=True)
        if chosen[ALGORITHM] == name and form in (None, chosen["product_input"])
    ]
    return mine[: count + 1]


def fits(spec):
    """Whether the algorithms take a convolution."""
    return spec.output_channels >= 16 and spec.reduced >= 32


def require_close(spec, name, seed=0, count=1, form=None):
    """Outputs differ from the reference as the algorithm's error explains."""
    provider = TemplateSpace(options_of(name))
    builder = provider.builder(spec.task("t", NATIVE), threads=2)
    (expected,), _ = builder.reference()
    (sizes,) = builder.operator.reference([np.abs(array) for array in builder.inputs])
    configs = splits(builder.space, count, seed, name=name, form=form)
    assert configs
    for config in configs:
        (output,) = builder.build(config.tolist()).outputs()
        # Each product has such an error at most, whatever cancels in their sum.
        error = np.abs(output - expected).max()
        assert error <= PRODUCTS[name] * np.abs(sizes).max(), builder.space.decode(config)


@pytest.mark.full
@pytest.mark.parametrize("name", SPLIT_PARTS)
@few(5)
@given(spec=wide_convolutions(EPILOGUES).filter(fits), seed=st.integers(0, 9))
def test_convolutions(name, spec, seed):
    require_close(spec, name, seed)


@pytest.mark.full
@pytest.mark.parametrize("name", SPLIT_PARTS)
@pytest.mark.parametrize(
    "spec",
    [
        DenseSpec(input=(37, 70), units=45, **FINISHED),
        DenseSpec(input=(16, 33), units=20),
        DenseSpec(input=(3, 64), units=48, **FINISHED),
        Conv1dSpec(input=[1, 24, 30], filters=20, kernel=3, padding=1, layout="NWC"),
    ],
    ids=lambda spec: f"{spec.kind}-{spec.sizes}",
)
def test_other_operators(name, spec):
    require_close(spec, name, count=2)


@given(
    rows=st.integers(16, 4000),
    depth=st.integers(1, 100),
    units=st.integers(16, 4000),
    columns=st.sampled_from([16, 32, 48]),
    cores=st.integers(1, 64),
)
def test_panels_fit_l2_and_occupy_the_cores(rows, depth, units, columns, cores):
    geometry = geometry_of(Conv1dSpec(input=[1, 32 * depth, rows], filters=units, kernel=1), 16)
    info, product = attrs.evolve(target_info(SAPPHIRE), cores=cores), AmxBfloat16()
    pixels = int(panel_pixels(geometry, product, info, columns, (2, 2)))
    panels, blocks = math.ceil(rows / pixels), math.ceil(rows / columns)
    assert pixels == rows or pixels % columns == 0
    # With two blocks in a panel instead of one, as few as half of the cores have one.
    assert panels >= min(blocks, cores) / 2
    assert pixels <= columns or 2 * 2 * pixels * 32 * depth <= info.l2_bytes / 2


@pytest.mark.parametrize(
    "spec",
    [
        DenseSpec(input=(100, 40), units=70, **FINISHED),
        full(Conv2dSpec(input=[2, 48, 5, 7], filters=32, kernel=1, layout="NCHW16c")),
    ],
    ids=lambda spec: spec.kind,
)
def test_panels_of_inputs(spec):
    """Sizes are no multiples of those of blocks, and there are several panels."""
    require_close(spec, "split3", count=2, form="by_panel")


def product(inputs, weights, name, exact, form):
    """A matrix product by an algorithm; ``inputs`` has shape (rows, K), ``weights`` (N, K)."""
    spec = DenseSpec(input=inputs.shape, units=len(weights), exact_weights=exact)
    task = spec.task("t", NATIVE)
    template = template_of(task, options_of(name))
    builder = TemplateSpace(options_of(name)).builder(task, threads=2)
    (config, *_) = splits(builder.space, 0, 0, name=name, form=form)
    values = builder.space.decode(config)
    assert values[ALGORITHM] == name
    program = template.program(values, builder.operator, [inputs, weights])
    return TVMKernel(program, NATIVE).outputs()[0]


@pytest.mark.parametrize("rows", [1, 5])
def test_few_rows(rows):
    require_close(DenseSpec(input=(rows, 64), units=48, **FINISHED), "split3", count=2)


def test_all_configurations_pack_weights_alike():
    """The kernels for all numbers of rows can then read the same weights."""
    weights = np.random.default_rng(0).standard_normal((96, 64)).astype(np.float32)
    packed = []
    for rows in (1, 5, 100):
        provider = TemplateSpace(options_of("split3"))
        spec = DenseSpec(input=(rows, 64), units=96)
        builder = provider.builder(spec.task("t", SAPPHIRE), threads=2)
        inputs = [np.zeros((rows, 64), np.float32), weights]
        builder.use(inputs)
        configs = splits(builder.space, 5, 0, name="split3")
        values = [builder.space.decode(config)["product_vectors"] for config in configs]
        assert len({*values}) > 1
        packed += [builder.program(config.tolist()).inputs[1] for config in configs]
    assert all(np.array_equal(array, packed[0]) for array in packed)


@pytest.mark.parametrize("name", ["split3", full("split6")])
def test_exact_weights_have_one_part(name):
    """Two or three products then have all bits of the weights."""
    exact = {"exact_weights": BFLOAT16}
    spec = DenseSpec(input=(37, 70), units=45, **FINISHED, **exact)
    require_close(spec, name, count=2)
    layer = attrs.evolve(LAYER, **exact)
    template = template_of(layer.task("t", SAPPHIRE), options_of(name))
    space = template.design_space
    function = template.function(space.decode(space.first_guesses[0]))
    pairs = {"split3": 2, "split6": 3}[name]
    sums = assembly_of(function, SAPPHIRE)
    assert sums.count("tdpbf16ps") % pairs == 0
    weights = int(np.prod(function.params[1].shape))
    assert weights == math.prod(layer.filter_shape)


SPECIAL = [np.inf, -np.inf, np.nan, 3.4e38, -3.4e38, 3.396e38, 1e-40, -0.0]


@pytest.mark.full
@pytest.mark.parametrize("name", SPLIT_PARTS)
@pytest.mark.parametrize(("exact", "form"), [("", "copy"), (BFLOAT16, "copy"), ("", "by_panel")])
@pytest.mark.parametrize("special", SPECIAL)
def test_infinities_nan_and_huge_numbers(name, special, exact, form):
    generator = np.random.default_rng(0)
    inputs = generator.standard_normal((20, 48)).astype(np.float32)
    weights = (0.1 * generator.standard_normal((33, 48))).astype(np.float32)
    weights[:5, 7] = 0.0, 1.0, -1.0, 0.999, -1.001
    if exact:
        weights = STORAGE[exact].rounded(weights)
    inputs[3, 7] = special
    inputs[11, 7], inputs[11, 9] = np.inf, -np.inf
    with np.errstate(invalid="ignore", over="ignore"):
        expected = (inputs.astype(np.float64) @ weights.T.astype(np.float64)).astype(np.float32)
    output = product(inputs, weights, name, exact, form)
    finite = np.isfinite(expected)
    assert np.array_equal(np.isnan(output), np.isnan(expected))
    assert np.array_equal(output[~finite], expected[~finite], equal_nan=True)
    for row in range(len(inputs)):
        mine = finite[row]
        if mine.any():
            error = np.abs(output[row][mine] - expected[row][mine]).max()
            assert error <= ERRORS[name] * np.abs(expected[row][mine]).max(), row


def test_padding_beside_infinities_is_zero():
    spec = Conv2dSpec(input=[1, 16, 6, 6], filters=16, kernel=3, padding=1, layout="NHWC")
    task = spec.task("t", NATIVE)
    builder = TemplateSpace(options_of("split3")).builder(task, threads=2)
    inputs = [array.copy() for array in builder.inputs]
    inputs[0].reshape(-1)[0] = np.inf
    (config, *_) = splits(builder.space, 0, 0, name="split3")
    values = builder.space.decode(config)
    template = template_of(task, options_of("split3"))
    output = TVMKernel(template.program(values, builder.operator, inputs), NATIVE).outputs()[0]
    # Four outputs read the first pixel, whose other channels are finite.
    assert np.isfinite(output).sum() == output.size - 4 * 16


@given(
    arrays.arrays(
        np.float32,
        (1, 8),
        elements=st.floats(width=32, allow_nan=False, allow_infinity=False, allow_subnormal=False),
    ),
    st.sampled_from([2, 3]),
)
def test_parts_add_up_to_the_weight(weights, parts):
    half = STORAGE[BFLOAT16]
    stored = SplitArithmetic(product=AmxBfloat16(), parts=parts).store_weights(weights)
    numbers = half.real(stored).reshape(parts, -1).astype(np.float64)
    exact = weights.astype(np.float64)
    error = np.abs(numbers.sum(axis=0) - exact).max(axis=0)
    # Each part has eight bits; the smallest ones end at the smallest number.
    room = np.abs(exact) * 2.0 ** (-8 * parts) + 2.0**-133
    assert (error <= room).all()
    assert np.isfinite(numbers).all()


@pytest.mark.parametrize("name", SPLIT_PARTS)
def test_the_expected_error_is_that_of_random_products(name):
    generator = np.random.default_rng(0)
    half, parts = STORAGE[BFLOAT16], SPLIT_PARTS[name]

    def split(numbers):
        pieces, rest = [], numbers
        for _ in range(parts):
            pieces.append(half.real(half.stored(rest)).astype(np.float64))
            rest = (rest - pieces[-1]).astype(np.float32)
        return pieces

    left, right = (generator.standard_normal((400, 400)).astype(np.float32) for _ in range(2))
    expected = left.astype(np.float64) @ right.astype(np.float64)
    pairs = [
        a @ b
        for i, a in enumerate(split(left))
        for j, b in enumerate(split(right))
        if i + j < parts
    ]
    error = np.sqrt(np.mean((sum(pairs) - expected) ** 2) / np.mean(expected**2))
    assert error / 2 <= split_error(parts) <= 2 * error


def algorithms_in(spec, target, **options):
    template = template_of(spec.task("t", target), TemplateOptions(**options))
    return [name for algorithm in template.algorithms for name in algorithm.names]


LAYER = Conv2dSpec(
    input=[1, 64, 14, 14], filters=64, kernel=3, padding=1, layout="NHWC", output_layout="NHWC"
)


@pytest.mark.parametrize("extent", [7, 14, 64])
def test_a_search_chooses_among_all_algorithms(extent):
    layer = attrs.evolve(LAYER, input=[1, 64, extent, extent])
    names = algorithms_in(layer, SAPPHIRE)
    assert names == ["direct", "winograd2", "winograd4", "split3", "split6"]
    space = TemplateSpace(TemplateOptions()).design_space(layer.task("t", SAPPHIRE))
    assert {space.decode(row)[ALGORITHM] for row in space.first_guesses} == set(names)


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"max_error": 4e-6}, ["direct", "winograd2", "split6"]),
        ({"algorithms": ("direct",)}, ["direct"]),
        ({"algorithms": ("split3",)}, ["split3"]),
        ({"algorithms": ("split3",), "max_error": 1e-6}, ["direct"]),
    ],
)
def test_options_choose_algorithms(options, names):
    assert algorithms_in(LAYER, SAPPHIRE, **options) == names


@pytest.mark.parametrize(
    ("products", "detail", "names"),
    [
        (8, 8, ["direct", "winograd2", "winograd4", "split3", "split6"]),
        (64, 1, ["direct", "winograd2", "winograd4", "split6"]),
        (64, 64, ["direct", "winograd2", "split6"]),
        (4096, 1, ["direct", "split6"]),
        (65536, 65536, ["direct"]),
    ],
)
def test_large_products_that_cancel_exclude_algorithms(products, detail, names):
    layer = attrs.evolve(LAYER, cancellation=products, detail_cancellation=detail)
    assert algorithms_in(layer, SAPPHIRE) == names
    assert algorithms_in(layer, SAPPHIRE, max_error=None) == algorithms_in(LAYER, SAPPHIRE)
    whole = attrs.evolve(layer, dtype="int8")
    assert not {"cancellation", "detail_cancellation"} & {*whole.arguments(), *LAYER.arguments()}


@pytest.mark.parametrize(
    ("spec", "target"),
    [
        (LAYER, resolved(f"{X86}icelake-server")),
        (attrs.evolve(LAYER, groups=2), SAPPHIRE),
        (Conv3dSpec(input=[1, 8, 4, 8, 8], filters=8, kernel=3, layout="NDHWC"), SAPPHIRE),
        (attrs.evolve(LAYER, dtype="bfloat16"), SAPPHIRE),
        (attrs.evolve(LAYER, filters=15), SAPPHIRE),
        (DenseSpec(input=(64, 31), units=64), SAPPHIRE),
    ],
    ids=["no tiles", "groups", "three axes", "bfloat16", "channels", "depth"],
)
def test_what_it_does_not_support(spec, target):
    assert not {"split3", "split6"} & {*algorithms_in(spec, target)}


@pytest.mark.parametrize("name", SPLIT_PARTS)
def test_code_has_the_products_and_asks_for_a_permission(name):
    template = template_of(LAYER.task("t", SAPPHIRE), options_of(name))
    space = template.design_space
    function = template.function(space.decode(space.first_guesses[0]))
    assert permissions_of(function) == {"amx"}
    products = assembly_of(function, SAPPHIRE).count("tdpbf16ps")
    # One for each pair of parts whose product is not too small, of each pair of tiles.
    pairs = {"split3": 3, "split6": 6}[name]
    assert products > 0
    assert products % pairs == 0


def test_outputs_and_residuals_are_prefetched_in_float32():
    functions = {}
    for dtype, name in (("float32", "split3"), ("bfloat16", "tiles")):
        spec = DenseSpec(input=(64, 64), units=64, bias=True, residual=True, dtype=dtype)
        template = template_of(spec.task("t", SAPPHIRE), TemplateOptions())
        (config, *_) = splits(template.design_space, 0, 0, name=name)
        functions[dtype] = assembly_of(
            template.function(template.design_space.decode(config)), SAPPHIRE
        )
    assert "prefetchw" in functions["float32"]
    assert "prefetcht0" in functions["float32"]
    assert "prefetch" not in functions["bfloat16"]


def test_errors_are_ordered():
    assert split_error(3) < 1e-7 < split_error(2) < 1e-5
    assert math.isclose(split_error(2), 4.55e-6, rel_tol=0.05)
