"""Random legal configurations of attention compute the reference's numbers, in every layout."""

import numpy as np
import pytest
from chameleon_core._errors import ConfigError
from chameleon_tvm import _emit as emit
from chameleon_tvm._building.kernel import TVMKernel
from chameleon_tvm._device.targets import target_info
from chameleon_tvm._spaces.template.attention_parts import exponential
from chameleon_tvm.api import AttentionSpec
from computing import NATIVE, PROVIDER, check, few, ran, require_reference, resolved
from hypothesis import given
from hypothesis import strategies as st

FEW = few(15)
TARGETS = ["llvm -mcpu=haswell -num-cores=2", "llvm -mcpu=znver4 -num-cores=4"]


@st.composite
def attentions(draw):
    batch, shared = draw(st.integers(1, 2)), draw(st.integers(1, 2))
    heads = shared * draw(st.integers(1, 3))
    queries, keys = draw(st.integers(1, 40)), draw(st.integers(1, 80))
    features = draw(st.sampled_from([1, 3, 8, 16, 20, 24]))
    packed = draw(st.integers(0, 3)) == 0
    if packed:
        keys, values = queries, features
        layouts = ("BSHD",) * 3
    else:
        values = draw(st.sampled_from([1, 5, 8, 24]))
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
        scale=draw(st.sampled_from([1.0, features**-0.5])),
        causal=causal,
        mask=mask,
        query_layout=layouts[0],
        key_layout=layouts[1],
        value_layout=layouts[2],
        output_layout=draw(st.sampled_from(["BHSD", "BSHD"])),
        packed=packed,
    )


@pytest.mark.full
@FEW
@given(attentions(), st.integers(0, 1000))
def test_random_shapes_and_configurations(spec, seed):
    check(spec, seed)


@pytest.mark.full
@pytest.mark.parametrize("causal", [False, True])
def test_blocks_of_keys_give_what_all_keys_at_once_do(causal):
    spec = AttentionSpec(
        query=[1, 2, 150, 24], key=[1, 2, 150, 24], value=[1, 2, 150, 24], causal=causal
    )
    space = PROVIDER.design_space(spec.task("t", NATIVE))
    configs = space.sample(200, np.random.default_rng(0))
    blocks = {}
    for config in configs:
        blocks.setdefault(space.decode(config)["key_block"], config)
    assert len(blocks) > 2
    require_reference(PROVIDER.builder(spec.task("t", NATIVE), threads=2), blocks.values())


def test_a_query_without_a_visible_key_gets_zeros():
    spec = AttentionSpec(
        query=[1, 1, 9, 8], key=[1, 1, 76, 8], value=[1, 1, 76, 8], mask=[1, 1, 9, 76]
    )
    for block in (64, 76):
        task = spec.task("t", NATIVE)
        builder = PROVIDER.builder(task, threads=2)
        inputs = builder.operator.inputs()
        inputs[3][0, 0, 4] = -np.inf
        inputs[3][0, 0, 5, :66] = -np.inf  # all keys of the first block
        builder.use(inputs)
        space = PROVIDER.design_space(task)
        config = next(
            row
            for row in space.sample(200, np.random.default_rng(0))
            if space.decode(row)["key_block"] == block
        )
        (got,) = TVMKernel(builder.program(config.tolist()), NATIVE).outputs()
        (expected,) = builder.operator.reference(inputs)
        assert not got[0, 0, 4].any()
        np.testing.assert_allclose(got, expected, atol=1e-5)


def test_the_largest_finite_mask_hides_keys_and_spreads_over_all_where_none_is_left():
    spec = AttentionSpec(
        query=[1, 1, 4, 8], key=[1, 1, 12, 8], value=[1, 1, 12, 8], mask=[1, 1, 4, 12]
    )
    builder = PROVIDER.builder(spec.task("t", NATIVE), threads=1)
    inputs = builder.operator.inputs()
    inputs[3][...] = 0.0
    inputs[3][0, 0, 1, 3:] = np.finfo(np.float32).min
    inputs[3][0, 0, 2] = np.finfo(np.float32).min
    builder.use(inputs)
    space = PROVIDER.design_space(spec.task("t", NATIVE))
    (got,) = TVMKernel(builder.program(space.first_guesses[0].tolist()), NATIVE).outputs()
    np.testing.assert_allclose(got[0, 0, 2], inputs[2][0, 0].mean(axis=0), atol=1e-6)
    seen, *_ = builder.operator.reference(
        [i[..., :3, :] for i in inputs[:3]] + [inputs[3][..., :3, :3]]
    )
    np.testing.assert_allclose(got[0, 0, 1], seen[0, 0, 1], atol=1e-6)


@pytest.mark.parametrize("lanes", [1, 8])
def test_exponentials_of_numbers_below_zero(lanes):
    count = 4096
    source, target = emit.buffer("x", (count,)), emit.buffer("y", (count,))

    def some(i):
        value = exponential(emit.load(source, [i * lanes], lanes))
        return emit.store(target, [i * lanes], value, lanes)

    function = emit.function([source, target], emit.loop("i", count // lanes, some))
    x = np.linspace(-95, 0, count, dtype=np.float32)
    x[:2] = -np.inf, np.nan
    y = ran(function, [x], count)
    expected = np.exp(x.astype(np.float64))
    np.testing.assert_allclose(y, expected, rtol=6e-6, atol=2e-38)
    near = x > -10
    np.testing.assert_allclose(y[near], expected[near], rtol=1e-6)
    assert y[0] == 0.0
    assert y[-1] == 1.0


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("heads", "tokens", "features"), [(12, 197, 64), (8, 512, 64), (4, 64, 80), (6, 50, 24)]
)
def test_first_guesses_fill_the_registers_and_no_more(target, heads, tokens, features):
    shape = [1, heads, tokens, features]
    spec = AttentionSpec(query=shape, key=shape, value=shape, query_layout="BSHD")
    task = spec.task("t", resolved(target))
    space = PROVIDER.design_space(task)
    info = target_info(task.target)
    first = space.decode(space.first_guesses[0])
    assert space.legal(space.first_guesses).all()
    for rows, vectors in (("key_rows", "query_vectors"), ("query_rows", "value_vectors")):
        sums = first[rows] * first[vectors]
        assert info.vector_registers // 4 <= sums < info.vector_registers


def test_keys_that_lie_side_by_side_are_not_copied():
    shape = [1, 2, 16, 8]
    inside = PROVIDER.design_space(
        AttentionSpec(query=shape, key=shape, value=shape).task("t", NATIVE)
    )
    assert {inside.decode(guess)["keys"] for guess in inside.first_guesses} == {"in_place"}
    transposed = AttentionSpec(query=shape, key=shape, value=shape, key_layout="BHDS")
    copied = PROVIDER.design_space(transposed.task("t", NATIVE))
    assert {copied.decode(guess)["keys"] for guess in copied.first_guesses} == {"copy"}


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"key": [1, 3, 16, 8], "value": [1, 3, 16, 8]}, "do not fit together"),
        ({"key": [1, 2, 16, 9]}, "do not fit together"),
        ({"mask": [1, 1, 1, 16], "causal": True}, "leave causal out"),
        ({"mask": [1, 2, 5, 16]}, "cannot be broadcast"),
        ({"value_layout": "BHDS"}, "'BHDS' is not supported"),
        ({"packed": True}, "one array cannot hold"),
        ({"query": [1, 2, 16]}, "needs 4 numbers"),
        ({"dtype": "int8"}, "Give float32, float16 or bfloat16"),
    ],
)
def test_attention_that_cannot_be_is_refused_with_a_sentence(changed, problem):
    shape = [1, 2, 16, 8]
    sizes = {"query": shape, "key": shape, "value": shape, **changed}
    with pytest.raises(ConfigError) as caught:
        AttentionSpec(**sizes)
    assert problem in f"{caught.value} {caught.value.hint}"
