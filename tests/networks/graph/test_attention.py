"""Attention is found in networks as frameworks write it, and computes what they do."""

import math
import warnings
from functools import partial

import numpy as np
import pytest
import torch
from chameleon_networks._compile.lowered_networks import functions_without_kernels
from chameleon_networks._graph.fusion import find_fusions
from chameleon_networks._graph.operators import count_unfused_operators
from chameleon_networks._graph.prepare import prepare_module
from chameleon_networks._importers.torch.lowering.importer import torch_graph
from marks import full

from ..lowering.networks import Many  # noqa: TID252 - shared by folders

WIDTH, HEADS, TOKENS = 32, 4, 10
REPLACED = {"nn.softmax", "where", "max", "equal", "permute_dims", "split", "matmul"}


class Projected(torch.nn.Module):
    """Queries, keys and values of four projections, mixed by a function of them and of a mask."""

    def __init__(self, mix, *, shared=HEADS):
        super().__init__()
        self.mix = mix
        features = WIDTH // HEADS
        widths = (WIDTH, shared * features, shared * features, WIDTH)
        self.parts = torch.nn.ModuleList(torch.nn.Linear(WIDTH, width) for width in widths)

    def forward(self, x, *mask):
        batch, tokens, _ = x.shape
        *inside, last = self.parts
        parts = [part(x).view(batch, tokens, -1, WIDTH // HEADS).transpose(1, 2) for part in inside]
        return last(self.mix(*parts, *mask).transpose(1, 2).reshape(batch, tokens, WIDTH))


def fused(query, key, value, mask=None, **options):
    return torch.nn.functional.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, **options
    )


def causal(query, key, value):
    return fused(query, key, value, is_causal=True)


def grouped(query, key, value):
    return fused(query, key, value, enable_gqa=True)


def eager(query, key, value, mask=None):
    scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
    if mask is not None:
        scores = scores + mask
    weights = torch.nn.functional.dropout(torch.softmax(scores, dim=-1), 0.1, training=False)
    return weights @ value


def filled(query, key, value, mask):
    scores = (query * 0.25) @ key.transpose(-1, -2)
    return torch.softmax(scores.masked_fill(~mask, -1e9).float(), dim=-1).to(value.dtype) @ value


def flat(query, key, value):
    """With heads in the batch, as ``bmm`` wants them."""
    query, key, value = (part.flatten(0, 1) for part in (query, key, value))
    mixed = torch.bmm(torch.softmax(torch.bmm(query, key.transpose(1, 2)), dim=-1), value)
    return mixed.unflatten(0, (-1, HEADS))


def biased(query, key, value):
    """A constant bias for every head, and later keys hidden besides, as in T5's decoder."""
    tokens = query.shape[2]
    bias = torch.arange(HEADS * tokens * tokens).reshape(HEADS, tokens, tokens).float().sin()
    scores = query @ key.transpose(-1, -2) + bias
    hidden = torch.full((tokens, tokens), -math.inf).triu(1)
    return torch.softmax(scores + hidden, dim=-1) @ value


class Packed(torch.nn.Module):
    """One projection for queries, keys and values, taken apart in one of three ways."""

    def __init__(self, *, split):
        super().__init__()
        self.split = split
        self.inside = torch.nn.Linear(WIDTH, 3 * WIDTH)

    def forward(self, x):
        batch, tokens, _ = x.shape
        if self.split:
            parts = self.inside(x).split(WIDTH, dim=2)
            parts = [part.view(batch, tokens, HEADS, -1).transpose(1, 2) for part in parts]
        else:
            whole = self.inside(x).reshape(batch, tokens, 3, HEADS, -1)
            whole = whole.permute(2, 0, 3, 1, 4)
            parts = [whole[n] for n in range(3)] if self.split is None else whole.unbind(0)
        return fused(*parts).transpose(1, 2).reshape(batch, tokens, WIDTH)


def states(batch=1):
    return torch.randn(batch, TOKENS, WIDTH, generator=torch.Generator().manual_seed(0))


def seen(*shape):
    """A mask of which some are hidden, but never all of a row."""
    mask = torch.rand(shape, generator=torch.Generator().manual_seed(1)) > 0.4
    mask[..., 0] = True
    return mask


CASES = {
    "fused": (lambda: Projected(fused), (states(),), {"query_layout": "BSHD"}),
    "a batch": (lambda: Projected(fused), (states(3),), {"output_layout": "BSHD"}),
    "causal": (lambda: Projected(causal), (states(),), {"causal": True, "mask": ()}),
    "grouped": (lambda: Projected(grouped, shared=2), (states(),), {"key": (1, 2, TOKENS, 8)}),
    "one key head": (
        lambda: Projected(grouped, shared=1),
        (states(2),),
        {"key": (2, 1, TOKENS, 8)},
    ),
    "boolean mask": (
        lambda: Projected(fused),
        (states(), seen(1, 1, TOKENS, TOKENS)),
        {"mask": (1, 1, TOKENS, TOKENS)},
    ),
    "padding": (
        lambda: Projected(eager),
        (states(2), torch.where(seen(2, 1, 1, TOKENS), 0.0, torch.finfo(torch.float32).min)),
        {"mask": (2, 1, 1, TOKENS)},
    ),
    "eager": (lambda: Projected(eager), (states(),), {"value_layout": "BSHD"}),
    "filled": (
        lambda: Projected(filled),
        (states(), seen(TOKENS, TOKENS)),
        {"mask": (1, 1, TOKENS, TOKENS), "scale": 0.25},
    ),
    "flat": (lambda: Projected(flat), (states(2),), {"scale": 1.0}),
    "biased": (lambda: Projected(biased), (states(),), {"mask": (1, HEADS, TOKENS, TOKENS)}),
    "split": (lambda: Packed(split=True), (states(),), {"packed": True}),
    "unbound": (lambda: Packed(split=False), (states(2),), {"packed": True}),
}


def imported(network, inputs, layout="NCHW"):
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(network.eval(), inputs)
    return prepare_module(torch_graph(program).module, layout)


def check_outputs(network, module, deliver, inputs, *, tolerance=1e-5, names=("",)):
    """A module computes what the network of torch does; its outputs have names."""
    with torch.no_grad():
        wanted = network(*inputs)
    got = deliver(module, ready=True, guesses=True).run(*(tensor.numpy() for tensor in inputs))
    pairs = [(got, wanted)] if isinstance(wanted, torch.Tensor) else zip(got, wanted, strict=True)
    errors = [np.abs(one - want.numpy()).max() / want.abs().max() for one, want in pairs]
    assert {name: e for name, e in zip(names, errors, strict=True) if not e <= tolerance} == {}


def attentions(fusions):
    return [fusion for fusion in fusions if fusion.spec.kind == "attention"]


@pytest.mark.full
def test_each_is_one_kernel_that_computes_the_same(deliver):
    torch.manual_seed(0)
    networks = [make() for make, *_ in CASES.values()]
    inputs = [given for _, given, _ in CASES.values()]
    together = Many(networks, [len(given) for given in inputs])
    every = tuple(tensor for given in inputs for tensor in given)
    module = imported(together, every)
    fusions = find_fusions(module)
    found = {
        case: {name: getattr(fusion.spec, name) for name in expected}
        for fusion, (case, (*_, expected)) in zip(attentions(fusions), CASES.items(), strict=True)
    }
    assert found == {case: expected for case, (*_, expected) in CASES.items()}
    assert not any(fusion.spec.kind == "batch_matmul" for fusion in fusions)
    # The boolean mask becomes a number, since it is an input of the network.
    rest = count_unfused_operators(module, fusions)
    assert rest["where"] == 1
    assert not {*rest} & (REPLACED - ({"where"} if len(inputs) > 1 else set()))
    check_outputs(together, module, deliver, every, names=CASES)


class Convolved(torch.nn.Module):
    """Attention between convolutions of one tap, as in SqueezeBERT: features before tokens."""

    def __init__(self):
        super().__init__()
        self.parts = torch.nn.ModuleList(torch.nn.Conv1d(WIDTH, WIDTH, 1) for _ in range(4))

    def forward(self, x):
        batch, _, tokens = x.shape
        *inside, last = self.parts
        query, key, value = (part(x).view(batch, HEADS, -1, tokens) for part in inside)
        weights = torch.softmax(query.transpose(2, 3) @ key, dim=-1)
        mixed = (weights @ value.transpose(2, 3)).transpose(2, 3)
        return last(mixed.reshape(batch, WIDTH, tokens))


@pytest.mark.full
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_a_convolution_behind_it_takes_nothing_of_it_away(layout, target, deliver):
    torch.manual_seed(0)
    network, inputs = Convolved().eval(), (states().transpose(1, 2).contiguous(),)
    module = imported(network, inputs, layout)
    fusions = find_fusions(module)
    assert [fusion.spec.kind for fusion in fusions].count("conv1d") == 4
    assert len(attentions(fusions)) == 1
    members = [member for fusion in fusions for member in fusion.members]
    assert len(set(members)) == len(members), "a variable is computed by one kernel"
    functions = functions_without_kernels(module, fusions, target)
    assert not any("matmul" in str(function) for function, _ in functions)
    # Errors of four layers in tiles of bfloat16 add up, so that they would hide a wrong order.
    check_outputs(network, module, partial(deliver, max_error=1e-6), inputs)


def test_what_is_around_a_kernel_is_found_where_its_mask_is_not_in_the_graph_yet(target):
    """The mask that the kernel adds is computed from the network's, which says what is seen."""
    module = imported(Projected(fused), (states(), seen(1, 1, TOKENS, TOKENS)))
    functions = functions_without_kernels(module, find_fusions(module), target)
    assert [calls for _, calls in functions] == [1] * len(functions) != []


def test_a_row_without_a_visible_key_is_zeros_as_in_torch(deliver):
    mask = seen(1, 1, TOKENS, TOKENS)
    mask[..., 3, :] = False
    network = Projected(fused)
    check_outputs(network, imported(network, (states(), mask)), deliver, (states(), mask))


class TwiceMasked(torch.nn.Module):
    """Attention whose scores are masked twice, by inputs or by constants."""

    def __init__(self, mask, *constants):
        super().__init__()
        self.mask, self.constants = mask, constants

    def forward(self, x, *masks):
        scores = self.mask(x @ x.transpose(-1, -2), *masks, *self.constants)
        return torch.softmax(scores, dim=-1) @ x


LOWEST = torch.finfo(torch.float32).min
TWO_MASKS = {
    "added": lambda scores, *masks: sum((torch.where(m, LOWEST, 0.0) for m in masks), scores),
    "added before": lambda scores, one, two: (
        scores + (torch.where(one, LOWEST, 0.0) + torch.where(two, LOWEST, 0.0))
    ),
    "filled": lambda scores, one, two: scores.masked_fill(one, LOWEST).masked_fill(two, LOWEST),
    "added, then filled": lambda scores, one, two: (
        scores + torch.where(one, -torch.inf, 0.0)
    ).masked_fill(two, LOWEST),
    "filled, then added": lambda scores, one, two: (
        scores.masked_fill(one, LOWEST) + torch.where(two, -torch.inf, 0.0)
    ),
}


@pytest.mark.full
@pytest.mark.parametrize("constant", [False, True])
def test_rows_that_two_masks_hide_are_those_of_torch(constant, deliver):
    one, two = seen(1, 1, TOKENS, TOKENS), seen(1, 1, TOKENS, TOKENS).flip(3)
    for row, (first, second) in enumerate([(1, 1), (1, 0), (0, 1)]):
        one[..., row, :], two[..., row, :] = bool(first), bool(second)
    one[..., 3, :4], two[..., 3, 4:] = True, True
    x = torch.randn(1, 2, TOKENS, 8, generator=torch.Generator().manual_seed(0))
    given, kept = ((), (one, two)) if constant else ((one, two), ())
    networks = [TwiceMasked(mask, *kept) for mask in TWO_MASKS.values()]
    inputs = (x, *given) * len(networks)
    together = Many(networks, [1 + len(given)] * len(networks))
    module = imported(together, inputs)
    assert len(attentions(find_fusions(module))) == len(networks)
    with torch.no_grad():
        wanted = together(*inputs)
    got = deliver(module, ready=True, guesses=True).run(*(tensor.numpy() for tensor in inputs))
    for name, output, expected in zip(TWO_MASKS, got, wanted, strict=True):
        np.testing.assert_allclose(output, expected.numpy(), atol=1e-5, err_msg=name)


def test_what_is_read_elsewhere_is_not_taken_away(deliver):
    class Weights(torch.nn.Module):
        def forward(self, x):
            weights = torch.softmax(x @ x.transpose(-1, -2), dim=-1)
            return weights @ x + weights.sum()

    x = torch.randn(2, 3, 8, 8)
    module = imported(Weights(), (x,))
    assert not attentions(find_fusions(module))
    check_outputs(Weights(), module, deliver, (x,), tolerance=1e-4)


def test_a_softmax_of_something_else_is_none():
    class Temperature(torch.nn.Module):
        def forward(self, x):
            return torch.softmax(torch.tanh(x @ x.transpose(-1, -2)), dim=-1) @ x

    assert not attentions(find_fusions(imported(Temperature(), (torch.randn(2, 3, 8, 8),))))


def test_an_attention_layer_of_torch_reads_one_packed_array(deliver):
    layer = torch.nn.TransformerEncoderLayer(WIDTH, HEADS, 48, batch_first=True)
    module = imported(layer, (states(),))
    [fusion] = attentions(find_fusions(module))
    assert fusion.spec.packed
    check_outputs(layer, module, deliver, (states(),))


def network_of(name, kind):
    """A tiny network of a published library, and inputs."""
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": WIDTH, "num_attention_heads": HEADS, "intermediate_size": 48}
    tokens = torch.arange(12).reshape(1, 12)
    if name == "bert":
        config = transformers.BertConfig(vocab_size=50, num_hidden_layers=2, **sizes)
        network, inputs = transformers.BertModel, tokens
    elif name == "vit":
        config = transformers.ViTConfig(image_size=16, patch_size=8, num_hidden_layers=2, **sizes)
        network, inputs = transformers.ViTModel, torch.randn(1, 3, 16, 16)
    elif name == "gpt2":
        config = transformers.GPT2Config(
            vocab_size=50, n_embd=WIDTH, n_layer=2, n_head=HEADS, n_positions=32
        )
        network, inputs = transformers.GPT2Model, tokens
    else:
        config = transformers.LlamaConfig(
            vocab_size=50, num_hidden_layers=2, num_key_value_heads=2, **sizes
        )
        network, inputs = transformers.LlamaModel, tokens
    config._attn_implementation = kind

    class States(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.network = network(config)

        def forward(self, x):
            options = {} if name == "vit" else {"use_cache": False}
            return self.network(x, **options).last_hidden_state

    torch.manual_seed(0)
    return States().eval(), (inputs,)


@pytest.mark.full
@pytest.mark.parametrize("kind", ["eager", "sdpa"])
@pytest.mark.parametrize("name", ["bert", "vit", "gpt2", "llama"])
def test_networks_of_a_library(name, kind):
    network, inputs = network_of(name, kind)
    module = imported(network, inputs)
    fusions = find_fusions(module)
    fused = attentions(fusions)
    assert len(fused) == 2
    assert {fusion.spec.causal for fusion in fused} == {name in {"gpt2", "llama"}}
    # Llama rotates its queries and keys.
    assert {fusion.spec.packed for fusion in fused} == {name != "llama"}
    assert {fusion.spec.mask for fusion in fused} == {()}
    rest = count_unfused_operators(module, fusions)
    # Rotated queries and keys of Llama are in the layout that they were rotated in.
    assert rest.get("permute_dims", 0) <= {"vit": 1, "llama": 4}.get(name, 0)
    assert not {"nn.softmax", "where", "split", "matmul"} & set(rest)


@pytest.mark.parametrize(
    "test",
    [
        full(lambda mask, _: torch.isnan(mask)),
        full(lambda mask, _: mask.amax(-2, keepdim=True) == -math.inf),
        lambda mask, scores: (mask + scores).amax(-2, keepdim=True) == -math.inf,
        lambda *_: torch.eye(TOKENS, dtype=torch.bool),
    ],
    ids=["other numbers", "columns of the mask", "columns of scores", "constant"],
)
def test_zeros_elsewhere_than_in_hidden_rows_are_no_attention(test):
    def zeroed(query, key, value, mask):
        scores = query @ key.transpose(-1, -2) + mask
        return torch.where(test(mask, scores), 0.0, torch.softmax(scores, dim=-1)) @ value

    mask = torch.zeros(TOKENS, TOKENS)
    mask[:, 2] = -math.inf
    network, inputs = Projected(zeroed).eval(), (states(), mask)
    assert not attentions(find_fusions(imported(network, inputs)))


HIDDEN = seen(1, 1, TOKENS, TOKENS)
HIDDEN[..., 3, :] = False
IN_ONNX = {
    "eager": (lambda: Projected(eager), (states(),), 18),
    "packed": (lambda: Packed(split=None), (states(),), 18),
    "with a test of the softmax": (
        lambda: Projected(fused),
        (states(), seen(TOKENS, TOKENS)),
        18,
    ),
    "with a test of the mask": (lambda: Projected(fused), (states(), HIDDEN), 23),
    "without a mask": (lambda: Projected(fused), (states(),), 23),
}
"""By name: a network, its inputs, and the version of ONNX's operators."""


@pytest.mark.full
@pytest.mark.parametrize("name", IN_ONNX)
def test_the_same_in_an_onnx_file(deliver, tmp_path, name):
    pytest.importorskip("onnxscript")
    from chameleon_networks._importers.onnx.models import onnx_graph  # noqa: PLC0415 - needs onnx

    make, inputs, opset = IN_ONNX[name]
    network, file = make().eval(), tmp_path / "net.onnx"
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            network, inputs, str(file), dynamo=True, opset_version=opset, verbose=False
        )
    module = prepare_module(onnx_graph(str(file), {}).module, "NCHW")
    fusions = find_fusions(module)
    [fusion] = attentions(fusions)
    assert fusion.spec.query_layout == fusion.spec.output_layout == "BSHD"
    assert fusion.spec.packed
    assert not set(count_unfused_operators(module, fusions)) & (REPLACED - {"where"})
    check_outputs(network, module, deliver, inputs)
