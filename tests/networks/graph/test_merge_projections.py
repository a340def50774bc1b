"""Products of one tensor before an attention become one product, which computes the same."""

import pytest
import torch
from chameleon_networks._graph.fusion import find_fusions
from chameleon_networks._graph.operators import find_data, find_owners, specs_of
from chameleon_networks._graph.prepare import prepare_module
from chameleon_networks._graph.relax_utils import bindings_of, operator_name
from chameleon_networks._importers.torch.lowering.importer import torch_graph
from marks import full

WIDTH, HEADS, TOKENS = 32, 4, 10


class Attention(torch.nn.Module):
    """Attention with projections of queries, keys and values, of one tensor or of two.

    Args:
        bias: whether each of the three projections has a bias.
        shared: heads of keys and values.
        also: reads a projection beside the attention.
        last: whether queries are computed after keys and values.
    """

    def __init__(self, *, bias=(True, True, True), shared=HEADS, also=False, scale=1.0, last=False):
        super().__init__()
        features = WIDTH // HEADS
        widths = WIDTH, shared * features, shared * features
        parts = zip(widths, bias, strict=True)
        self.query, self.key, self.value = (torch.nn.Linear(WIDTH, w, bias=b) for w, b in parts)
        self.also, self.scale, self.last = also, scale, last

    def forward(self, x, *states):
        batch, tokens, _ = x.shape
        source = states[0] if states else x
        others = [self.key(source), self.value(source)] if self.last else []
        query = self.query(x) * self.scale
        projected = [query, *(others or [self.key(source), self.value(source)])]
        query, key, value = (
            part.view(batch, tokens, -1, WIDTH // HEADS).transpose(1, 2) for part in projected
        )
        mixed = torch.nn.functional.scaled_dot_product_attention(
            query, key, value, enable_gqa=query.shape[1] != key.shape[1]
        )
        mixed = mixed.transpose(1, 2).reshape(batch, tokens, WIDTH)
        return mixed + projected[1] if self.also else mixed


MERGED = {
    "plain": {},
    "one without bias": {"bias": (True, False, True)},
    "none with bias": {"bias": (False, False, False)},
    "grouped": {"shared": 2},
    "scaled": {"scale": 0.25},
    "queries last": {"last": True},
}


def prepared(network, *inputs):
    program = torch.export.export(network.eval(), inputs)
    imported = torch_graph(program)
    module = prepare_module(imported.module, "NCHW")
    return imported, module, find_fusions(module)


def check_outputs(network, module, deliver, *inputs):
    with torch.no_grad():
        wanted = network(*inputs)
    got = deliver(module, ready=True, guesses=True).run(*(tensor.numpy() for tensor in inputs))
    torch.testing.assert_close(torch.from_numpy(got), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "case",
    [
        *("plain", full("one without bias"), full("none with bias"), "grouped"),
        *(full("scaled"), "queries last"),
    ],
)
def test_projections_of_one_tensor_are_one_product(case, deliver):
    torch.manual_seed(0)
    network, x = Attention(**MERGED[case]), torch.randn(2, TOKENS, WIDTH)
    _, module, fusions = prepared(network, x)
    product, attention = fusions
    width = MERGED[case].get("shared", HEADS) * WIDTH // HEADS
    assert product.spec.kind == "dense"
    assert product.spec.units == WIDTH + 2 * width
    assert product.spec.bias == any(MERGED[case].get("bias", (True,)))
    assert product.merged == (WIDTH, width, width)
    assert attention.spec.packed
    assert not attention.merged
    check_outputs(network, module, deliver, x)


class Layers(torch.nn.Module):
    """Two layers, whose names and inputs differ, and a product of the same sizes."""

    def __init__(self):
        super().__init__()
        self.first, self.second = Attention(), Attention(bias=(True, False, True))
        self.between = torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return self.second(self.between(self.first(x)))


def test_a_merged_product_has_the_names_and_the_data_of_its_parts():
    imported, _, fusions = prepared(Layers(), torch.randn(2, TOKENS, WIDTH))
    owners = find_owners(fusions, imported.module, imported.locations)
    assert owners == [
        "first.query+key+value",
        "first",
        "between",
        "second.query+key+value",
        "second",
    ]
    names = [spec.name for spec in specs_of(fusions, owners)]
    assert names[0] == "first.query+key+value 32x96 @20"
    data = find_data(fusions, imported.module)
    first = next(
        binding.value
        for binding in bindings_of(imported.module["main"])
        if operator_name(binding.value) == "relax.matmul"
    )
    assert data[0].same_as(first.args[0])
    assert None not in data


class Speech(torch.nn.Module):
    """Convolutions, then layers of attention."""

    def __init__(self):
        super().__init__()
        first, second, third = (torch.nn.Conv1d(WIDTH, WIDTH, 3, padding=1) for _ in range(3))
        self.near = torch.nn.Sequential(first, second, torch.nn.ReLU(), third)
        pairs = [(torch.nn.LayerNorm(WIDTH), Attention()) for _ in range(2)]
        self.layers = torch.nn.Sequential(*(layer for pair in pairs for layer in pair))

    def forward(self, x):
        return self.layers(self.near(x.transpose(1, 2)).transpose(1, 2))


def test_other_operators_are_no_merged_products():
    _, _, fusions = prepared(Speech(), torch.randn(2, TOKENS, WIDTH))
    merged = [fusion for fusion in fusions if fusion.merged]
    assert [fusion.spec.units for fusion in merged] == [3 * WIDTH] * 2


@pytest.mark.parametrize("case", ["two tensors", full("read twice")])
def test_other_projections_stay_products_of_their_own(case, deliver):
    torch.manual_seed(0)
    x = torch.randn(2, TOKENS, WIDTH)
    inputs = (x, x + 1) if case == "two tensors" else (x,)
    network = Attention(also=case == "read twice")
    _, module, fusions = prepared(network, *inputs)
    assert [fusion.spec.kind for fusion in fusions].count("dense") == 3
    assert not any(fusion.merged for fusion in fusions)
    check_outputs(network, module, deliver, *inputs)
