"""Float32 products of varying matrices, and attention, by tiles of bfloat16 (loops here)."""

import math

import numpy as np
import pytest
from chameleon_tvm._building.kernel import TVMKernel
from chameleon_tvm._instructions.amx import AmxBfloat16
from chameleon_tvm._instructions.emission import permissions_of
from chameleon_tvm._spaces.template import split_algorithm
from chameleon_tvm._spaces.template.options import ALGORITHM, SPLIT_PARTS, TemplateOptions
from chameleon_tvm._spaces.template.provider import TemplateSpace, template_of
from chameleon_tvm.api import AttentionSpec, BatchMatmulSpec
from chameleon_tvm.testing.loop_tiles import LoopTiles
from computing import NATIVE, X86, assembly_of, few, require_sound, resolved
from hypothesis import given
from hypothesis import strategies as st

SAPPHIRE = resolved(f"{X86}sapphirerapids -num-cores=2")
ERRORS = {"split3": 1.5e-5, "split6": 1e-6}
"""Largest accepted errors of small products, beside which those of float32 are up to 5e-7."""
PRODUCTS = {"split3": 3.1e-5, "split6": 1e-6}
"""Largest errors of a product over its size, the sum's rounding included."""


@pytest.fixture(autouse=True, scope="module")
def loops():
    """This machine's CPU has tiles, which are loops."""
    chosen = split_algorithm.tile_products_of

    def products(target, **types):
        return [LoopTiles(AmxBfloat16())] if target == NATIVE else chosen(target, **types)

    split_algorithm.tile_products_of = products
    yield
    split_algorithm.tile_products_of = chosen


def builder_of(spec, name):
    return TemplateSpace(TemplateOptions(algorithms=(name,))).builder(
        spec.task("t", NATIVE), threads=2
    )


def product_spec(batch, rows, inner, columns, transposed):
    right = [batch, columns, inner] if transposed else [batch, inner, columns]
    return BatchMatmulSpec(a=[batch, rows, inner], b=right, transpose_b=transposed)


@st.composite
def products(draw):
    rows, columns = draw(st.integers(16, 70)), draw(st.integers(16, 70))
    return product_spec(
        draw(st.integers(1, 3)), rows, draw(st.integers(32, 100)), columns, draw(st.booleans())
    )


@pytest.mark.full
@pytest.mark.parametrize("name", SPLIT_PARTS)
@few(4)
@given(spec=products(), seed=st.integers(0, 9))
def test_products_of_any_sizes(name, spec, seed):
    builder = builder_of(spec, name)
    (expected,), _ = builder.reference()
    (config,) = builder.space.sample(1, np.random.default_rng(seed))
    values = builder.space.decode(config)
    assert values[ALGORITHM] == name
    (output,) = builder.build(config.tolist()).outputs()
    assert np.abs(output - expected).max() <= ERRORS[name] * np.abs(expected).max(), values


SPECIAL = {
    "tiles": [3.396e38, -3.396e38, 1e-40, -0.0],
    "direct": [np.inf, -np.inf, np.nan, 3.4e38, -3.4e38],
}
"""Numbers by the algorithm that computes all products if one number is among them."""


def smallest_block(space):
    """The configuration whose code is the shortest."""
    names = [knob.name for knob in space.knobs if knob.name.startswith("product_")]
    rows = [*space.first_guesses]
    return min(rows, key=lambda row: math.prod(map(space.decode(row).get, names))).tolist()


@pytest.mark.full
@pytest.mark.parametrize(("name", "transposed"), [("split3", True), ("split6", False)])
@pytest.mark.parametrize("special", SPECIAL)
def test_infinities_nan_and_huge_numbers(name, transposed, special):
    numbers = SPECIAL[special]
    spec = product_spec(2 * len(numbers), 20, 48, 33, transposed)
    builder = builder_of(spec, name)
    inputs = [0.1 * array for array in builder.operator.inputs()]
    left, right = inputs[0], inputs[1].swapaxes(1, 2) if transposed else inputs[1]
    # Products with these are of any sign, zero, and a little over and under the largest number.
    left[:, :5, 7] = right[:, 7, :5] = 0.0, 1.0, -1.0, 0.999, -1.001
    left[::2, 3, 7] = right[1::2, 7, 3] = numbers
    builder.use(inputs)
    (output,) = TVMKernel(builder.program(smallest_block(builder.space)), NATIVE).outputs()
    left, right = left.astype(np.float64), right.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        expected = (left @ right).astype(np.float32)
        sizes = np.abs(left) @ np.abs(right)
    finite = np.isfinite(expected)
    assert np.array_equal(output[~finite], expected[~finite], equal_nan=True)
    error = np.abs(output[finite] - expected[finite].astype(np.float64))
    assert (error <= PRODUCTS[name] * sizes[finite]).all()


@st.composite
def attentions(draw):
    batch, shared = draw(st.integers(1, 2)), draw(st.integers(1, 2))
    heads = shared * draw(st.integers(1, 2))
    queries, keys = draw(st.integers(16, 70)), draw(st.integers(32, 170))
    features = draw(st.sampled_from([16, 24, 40, 64]))
    packed = draw(st.integers(0, 3)) == 0
    if packed:
        queries, values, layouts = keys, features, ("BSHD",) * 3
    else:
        values = draw(st.sampled_from([16, 24, 48, 80]))
        layouts = tuple(
            draw(st.sampled_from(known))
            for known in (("BHSD", "BSHD"), ("BHSD", "BSHD", "BHDS"), ("BHSD", "BSHD"))
        )
    mask, causal = (), draw(st.booleans())
    if not causal and draw(st.booleans()):
        whole = (batch, heads, queries, keys)
        mask = tuple(draw(st.sampled_from([1, extent])) for extent in whole)
    return AttentionSpec(
        query=[batch, heads, queries, features],
        key=[batch, shared, keys, features],
        value=[batch, shared, keys, values],
        scale=features**-0.5,
        causal=causal,
        mask=mask,
        query_layout=layouts[0],
        key_layout=layouts[1],
        value_layout=layouts[2],
        output_layout=draw(st.sampled_from(["BHSD", "BSHD"])),
        packed=packed,
    )


@pytest.mark.full
@pytest.mark.parametrize("name", SPLIT_PARTS)
@few(5)
@given(spec=attentions(), seed=st.integers(0, 9))
def test_attention_of_any_sizes(name, spec, seed):
    builder = builder_of(spec, name)
    (expected,), _ = builder.reference()
    (config,) = builder.space.sample(1, np.random.default_rng(seed))
    (output,) = builder.build(config.tolist()).outputs()
    # Errors of scores become relative errors of exponentials.
    error = np.abs(output - expected).max()
    room = 3.0 * ERRORS[name] * np.abs(expected).max()
    assert error <= room, builder.space.decode(config)


ATTENTION = AttentionSpec(
    query=[2, 1, 33, 16], key=[2, 1, 70, 16], value=[2, 1, 70, 16], mask=[1, 1, 33, 70]
)


@pytest.mark.full
def test_attention_with_hidden_keys_and_special_numbers():
    builder = builder_of(ATTENTION, "split3")
    direct = builder_of(ATTENTION, "direct")
    first = direct.space.first_guesses[0].tolist()

    def outputs(inputs):
        """The outputs by tiles, and those of vectors."""
        results = []
        for one, config in ((builder, smallest_block(builder.space)), (direct, first)):
            one.use(inputs)
            results += TVMKernel(one.program(config), NATIVE).outputs()
        return results

    inputs = builder.operator.inputs()
    inputs[3][...] = 0.0
    inputs[3][0, 0, 4] = -np.inf
    inputs[3][0, 0, 5, 3:] = -np.inf
    inputs[3][0, 0, 6] = np.finfo(np.float32).min
    got, _ = outputs(inputs)
    (expected,) = builder.operator.reference(inputs)
    assert not got[:, :, 4].any()
    others = [row for row in range(33) if row != 6]
    np.testing.assert_allclose(got[:, :, others], expected[:, :, others], atol=3e-5)
    # The largest finite mask hides all keys alike.
    np.testing.assert_allclose(got[:, :, 6], inputs[2].mean(axis=2), atol=1e-5)
    for at, special in enumerate([np.inf, np.nan, -3.4e38]):
        changed = [array.copy() for array in inputs]
        changed[at][0, 0, 7, 3] = special
        # Vectors compute all outputs.
        tiles, vectors = outputs(changed)
        assert np.array_equal(tiles, vectors, equal_nan=True), special


HEADS = [1, 12, 512, 64]


@pytest.mark.parametrize(
    "spec",
    [
        product_spec(12, 512, 64, 512, True),
        AttentionSpec(query=HEADS, key=HEADS, value=HEADS),
    ],
    ids=lambda spec: spec.kind,
)
def test_the_search_chooses_among_all_algorithms(spec):
    space = TemplateSpace(TemplateOptions()).design_space(spec.task("t", SAPPHIRE))
    require_sound(space)
    chosen = {space.decode(row)[ALGORITHM] for row in space.first_guesses}
    assert {"direct", "split3"} <= chosen


@pytest.mark.parametrize(
    ("spec", "target", "options"),
    [
        (product_spec(2, 64, 64, 64, False), resolved(f"{X86}icelake-server"), {}),
        (product_spec(2, 15, 64, 64, False), SAPPHIRE, {}),
        (product_spec(2, 64, 31, 64, False), SAPPHIRE, {}),
        (product_spec(2, 64, 64, 15, False), SAPPHIRE, {}),
        (product_spec(2, 64, 64, 64, False), SAPPHIRE, {"algorithms": ("direct",)}),
        (product_spec(2, 64, 64, 64, False), SAPPHIRE, {"max_error": 1e-9}),
        (AttentionSpec(query=HEADS, key=HEADS, value=HEADS, dtype="bfloat16"), SAPPHIRE, {}),
        (AttentionSpec(query=[1, 12, 15, 64], key=HEADS, value=HEADS), SAPPHIRE, {}),
    ],
    ids=[
        *("no tiles", "rows", "depth", "columns", "algorithms", "error"),
        *("bfloat16", "queries"),
    ],
)
def test_what_it_does_not_support(spec, target, options):
    template = template_of(spec.task("t", target), TemplateOptions(**options))
    assert [name for each in template.algorithms for name in each.names] == ["direct"]


@pytest.mark.full
@pytest.mark.parametrize("spec", [product_spec(2, 64, 64, 64, True), ATTENTION])
@pytest.mark.parametrize("name", SPLIT_PARTS)
def test_code_has_the_products_and_asks_for_a_permission(spec, name):
    template = template_of(spec.task("t", SAPPHIRE), TemplateOptions(algorithms=(name,)))
    space = template.design_space
    function = template.function(space.decode(smallest_block(space)))
    assert permissions_of(function) == {"amx"}
    products = assembly_of(function, SAPPHIRE).count("tdpbf16ps")
    pairs = {"split3": 3, "split6": 6}[name]
    assert products > 0
    assert products % pairs == 0
