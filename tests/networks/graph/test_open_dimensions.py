"""Networks with an open length compute a call's part of a bucket, as a network of this length."""

import json

import chameleon_networks
import numpy as np
import pytest
from chameleon_networks._compile import open_dimension
from chameleon_networks._compile.network_pipeline import PIPELINE
from chameleon_networks._frontends.bucketed import make_frontend
from chameleon_networks._graph.relax_utils import tvm
from chameleon_networks._importers.options import TorchOptions
from chameleon_networks._shapes import Buckets, open_buckets
from chameleon_tvm.api import open_axes
from hypothesis import given
from hypothesis import strategies as st

from ..precision.conftest import NoTrials  # noqa: TID252 - what measures nothing

pytestmark = pytest.mark.usefixtures("forked_networks")

NETWORKS = """
import torch
from torch.nn import functional as F


class Encoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = torch.nn.Linear(24, 32), torch.nn.Linear(32, 24)
        self.parts = torch.nn.Linear(32, 96)
        self.norm = torch.nn.LayerNorm(32)

    def forward(self, x, mask):
        mask = ((mask > 0.5) | (torch.arange(mask.shape[1]) == 0)).float()
        x = self.norm(self.first(x))
        parts = self.parts(x).unflatten(-1, (6, 16)).transpose(1, 2).chunk(3, 1)
        added = torch.where(mask > 0, 0.0, -1e9)[:, None, None]
        mixed = F.scaled_dot_product_attention(*parts, attn_mask=added)
        x = F.gelu(self.last(mixed.transpose(1, 2).flatten(2) + x))
        weights = mask[..., None]
        mean = (x * weights).sum(1) / (weights.sum(1) + 1)
        return x, mean, (x - 100 * (1 - weights)).amax(1), x[:, 0]


def encoder():
    torch.manual_seed(0)
    return Encoder(), (torch.randn(1, 40, 24), torch.ones(1, 40))


class Images(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Conv2d(3, 16, 3, padding=1, stride=2)
        self.deep = torch.nn.Conv2d(16, 16, 3, padding=1, groups=16)
        self.last = torch.nn.Linear(16, 10)

    def forward(self, x):
        x = F.avg_pool2d(F.max_pool2d(torch.relu(self.first(x)), 2), 3, 2, 1)
        return self.last(F.silu(self.deep(x)).mean((2, 3))).softmax(-1)


def images():
    torch.manual_seed(0)
    return Images(), (torch.randn(3, 3, 12, 12),)


class Speech(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Conv1d(20, 32, 3, padding=1)
        self.halved = torch.nn.Conv1d(32, 32, 3, stride=2, padding=1)
        self.near = torch.nn.Conv1d(32, 32, 5, padding=2, groups=32)
        self.parts, self.last = torch.nn.Linear(32, 96), torch.nn.Linear(32, 7)

    def forward(self, x):
        x = F.gelu(self.near(F.gelu(self.halved(F.gelu(self.first(x)))))).transpose(1, 2)
        parts = self.parts(x).unflatten(-1, (6, 16)).transpose(1, 2).chunk(3, 1)
        x = x + F.scaled_dot_product_attention(*parts).transpose(1, 2).flatten(2)
        return self.last(x), x.mean(1)


def speech():
    torch.manual_seed(0)
    return Speech(), (torch.randn(1, 20, 40),)


class Shifted(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = torch.nn.Linear(24, 32), torch.nn.Linear(32, 24)

    def forward(self, x):
        rows = self.first(torch.cumsum(x, 1)).transpose(0, 1)
        rows = self.last(rows.flatten(0, 1)).unflatten(0, rows.shape[:2])
        x = rows.transpose(0, 1)
        return x, x + F.pad(x[:, :-1], (0, 0, 1, 0)) - F.pad(x[:, 1:], (0, 0, 0, 1))


def shifted():
    torch.manual_seed(0)
    return Shifted(), (torch.randn(2, 40, 24),)


class Tagger(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.LSTM(24, 16, batch_first=True, bidirectional=True)
        self.next = torch.nn.GRU(32, 24, batch_first=True)
        self.last = torch.nn.Linear(24, 5)

    def forward(self, x):
        x, (hidden, cell) = self.first(x)
        x, final = self.next(x)
        return self.last(x), hidden, cell, final


def tagger():
    torch.manual_seed(0)
    return Tagger(), (torch.randn(2, 40, 24),)


class Picked(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(24, 32)

    def forward(self, x):
        places = x[..., 0].argmax(-1)
        return self.first(x)[torch.arange(x.shape[0]), places]


def picked():
    torch.manual_seed(0)
    return Picked(), (torch.randn(2, 7, 24),)


class Summed(torch.nn.Module):
    def forward(self, x):
        for _ in range(3):
            x = torch.cumsum(torch.tanh(x), 1)
        return x


def summed():
    return Summed(), (torch.randn(1, 40, 24),)


class Turned(torch.nn.Module):
    def forward(self, x):
        return x + x.flip(1)


def turned():
    return Turned(), (torch.randn(1, 40, 24),)


class Ordered(torch.nn.Module):
    def forward(self, x):
        return x.topk(3, -1)[0], x.sort(-1, descending=True)[0], x.argsort(-1)


def ordered():
    return Ordered(), (torch.randn(2, 24),)
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("networks") / "nets.py"
    path.write_text(NETWORKS)
    return path


def source_of(file, name, **shapes):
    return make_frontend(TorchOptions(source=f"{file}:{name}", shapes=shapes, compare=False))


def delivered(source, delivery_into, folder, target):
    source.decide(NoTrials(target))
    result = source.deliver(delivery_into(source, folder, guessed=True))
    assert result.failure is None
    return json.loads((folder / "manifest.json").read_text())["buckets"]


def check(source, network, extent, inputs):
    reference = source.network.with_extents((extent,)).framework("torch", 1)
    for own, wanted in zip(network(*inputs), reference(inputs), strict=True):
        assert own.shape == wanted.shape
        np.testing.assert_allclose(own, wanted, atol=2e-5 * np.abs(wanted).max())


@pytest.mark.full
def test_a_call_computes_its_own_length(file, delivery_into, target, tmp_path):
    length = Buckets(range=(1, 200), sizes=(24, 96, 128, 160, 200), name="length")
    source = source_of(file, "encoder", x=(1, length, 24), mask=(1, length))
    buckets = delivered(source, delivery_into, tmp_path / "network", target)
    assert len(buckets) < len(length.buckets)
    assert {bucket["is_open"] for bucket in buckets} == {True}
    network = chameleon_networks.load(tmp_path / "network", threads=2)
    rng = np.random.default_rng(0)
    for extent in (1, 2, 7, 31, 33, 65, 97, 131, 169, 199, 200):
        # What an earlier call has left in memory must not be read.
        network(np.full((1, 200, 24), np.nan, np.float32), np.ones((1, 200), np.float32))
        x = rng.standard_normal((1, extent, 24)).astype(np.float32)
        mask = (rng.random((1, extent)) < 0.8).astype(np.float32)
        mask[0, 0] = 1.0
        check(source, network, extent, [x, mask])


@pytest.mark.full
def test_a_call_without_a_mask_computes_its_own_length(file, delivery_into, target, tmp_path):
    length = Buckets(range=(2, 200), sizes=(2, 60, 200), name="length")
    source = source_of(file, "speech", x=(1, 20, length))
    checked = source.check(target, 2, None)
    assert "padding" not in checked["summary"]
    buckets = delivered(source, delivery_into, tmp_path / "network", target)
    assert {bucket["is_open"] for bucket in buckets} == {True}
    network = chameleon_networks.load(tmp_path / "network", threads=2)
    assert network.outputs[0].shape == (1, "(length+1) // 2", 7)
    rng = np.random.default_rng(0)
    for extent in (1, 2, 3, 4, 5, 17, 32, 58, 59, 61, 125, 198, 199, 200):
        network(np.full((1, 20, 200), np.nan, np.float32))
        check(source, network, extent, [rng.standard_normal((1, 20, extent)).astype(np.float32)])


@pytest.mark.full
def test_recurrent_layers_take_the_steps_of_a_call(file, delivery_into, target, tmp_path):
    length = Buckets(range=(2, 160), sizes=(127, 160), name="length")
    source = source_of(file, "tagger", x=(2, length, 24))
    buckets = delivered(source, delivery_into, tmp_path / "network", target)
    assert all(bucket["is_open"] for bucket in buckets)
    rng = np.random.default_rng(0)
    with chameleon_networks.load(tmp_path / "network") as network:
        whole = rng.standard_normal((2, 160, 24)).astype(np.float32)
        for extent in (160, 2, 3, 33, 127, 128, 159):
            network(np.full_like(whole, np.nan))  # later steps of a call must not be read
            check(source, network, extent, (whole[:, :extent],))


@pytest.mark.full
def test_recurrent_layers_compute_the_batch_of_a_call(file, delivery_into, target, tmp_path):
    # The network for a batch of 1 has other operators, and that for 5 unrolls other rows.
    batch = Buckets(range=(1, 6), sizes=(1, 6), count=2, name="batch")
    source = source_of(file, "tagger", x=(batch, 9, 24))
    buckets = delivered(source, delivery_into, tmp_path / "network", target)
    assert [bucket["is_open"] for bucket in buckets] == [False, True]
    rng = np.random.default_rng(0)
    with chameleon_networks.load(tmp_path / "network") as network:
        whole = rng.standard_normal((6, 9, 24)).astype(np.float32)
        for extent in range(1, 7):
            network(np.full_like(whole, np.nan))
            check(source, network, extent, (whole[:extent],))


@pytest.mark.full
def test_a_call_computes_images_of_its_own_size(file, delivery_into, target, tmp_path):
    size = Buckets(range=(12, 80), count=3, name="size")
    source = source_of(file, "images", x=(3, 3, size, size))
    buckets = delivered(source, delivery_into, tmp_path / "network", target)
    assert {bucket["is_open"] for bucket in buckets} == {True}
    network = chameleon_networks.load(tmp_path / "network", threads=2)
    rng = np.random.default_rng(0)
    for extent in (12, 13, 14, 15, 31, 32, 33, 50, 51, 79, 80):
        network(np.full((3, 3, 80, 80), np.nan, np.float32))
        x = rng.standard_normal((3, 3, extent, extent)).astype(np.float32) + 1.0
        reference = source.network.with_extents((extent,)).framework("torch", 1)
        [wanted] = reference([x])
        np.testing.assert_allclose(network(x), wanted, atol=2e-5)


@pytest.mark.full
def test_a_call_computes_its_own_batch(file, delivery_into, target, tmp_path):
    source = source_of(file, "images", x=(Buckets(range=(1, 20), name="batch"), 3, 12, 12))
    buckets = delivered(source, delivery_into, tmp_path / "network", target)
    assert {bucket["is_open"] for bucket in buckets[1:]} == {True}
    network = chameleon_networks.load(tmp_path / "network", threads=2)
    rng = np.random.default_rng(0)
    for extent in (1, 2, 3, 7, 13, 19, 20):
        network(np.full((20, 3, 12, 12), np.nan, np.float32))
        x = rng.standard_normal((extent, 3, 12, 12)).astype(np.float32)
        reference = source.network.with_extents((extent,)).framework("torch", 1)
        [wanted] = reference([x])
        np.testing.assert_allclose(network(x), wanted, atol=2e-5)


@pytest.mark.full
@pytest.mark.parametrize("axis", ["length", "batch"])
def test_a_call_may_read_other_elements_of_its_own_and_have_its_rows_apart(
    file, delivery_into, target, tmp_path, axis
):
    size = Buckets(range=(1, 40), count=3, name=axis)
    shape = (2, size, 24) if axis == "length" else (size, 40, 24)
    source = source_of(file, "shifted", x=shape)
    buckets = delivered(source, delivery_into, tmp_path / "network", target)
    assert {bucket["is_open"] for bucket in buckets[1:]} == {True}
    network = chameleon_networks.load(tmp_path / "network", threads=2)
    rng = np.random.default_rng(0)
    for extent in (1, 2, 7, 13, 31, 39, 40):
        whole = [40 if each is size else each for each in shape]
        network(np.full(whole, np.nan, np.float32))
        asked = [extent if each is size else each for each in shape]
        check(source, network, extent, [rng.standard_normal(asked).astype(np.float32)])


@pytest.mark.full
def test_a_call_sorts_its_own_rows(file, delivery_into, target, tmp_path):
    source = source_of(file, "ordered", x=(Buckets(range=(2, 9), sizes=(2, 9), name="batch"), 24))
    buckets = delivered(source, delivery_into, tmp_path / "network", target)
    assert all(bucket["is_open"] for bucket in buckets)
    rng = np.random.default_rng(0)
    with chameleon_networks.load(tmp_path / "network") as network:
        for extent in (2, 3, 8, 9):
            network(np.full((9, 24), np.nan, np.float32))
            check(source, network, extent, [rng.standard_normal((extent, 24)).astype(np.float32)])


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "axes"), [("turned", (1, "length", 24)), ("ordered", (2, "length"))]
)
def test_what_moves_numbers_along_a_length_is_computed_whole(file, target, name, axes):
    length = Buckets(range=(3, 200), name="length")
    source = source_of(file, name, x=[length if axis == "length" else axis for axis in axes])
    before = [bucket.name for bucket, _ in source.networks]
    source.decide(NoTrials(target))
    assert [bucket.name for bucket, _ in source.networks] == before


@pytest.mark.full
def test_elements_of_a_batch_may_have_computed_numbers(file, delivery_into, target, tmp_path):
    source = source_of(file, "picked", x=(Buckets(range=(1, 6), count=3, name="batch"), 7, 24))
    buckets = delivered(source, delivery_into, tmp_path / "network", target)
    assert all(bucket["is_open"] for bucket in buckets if bucket["name"] != "batch=1")
    rng = np.random.default_rng(0)
    with chameleon_networks.load(tmp_path / "network") as network:
        whole = rng.standard_normal((6, 7, 24)).astype(np.float32)
        for extent in range(1, 7):
            network(np.full_like(whole, np.nan))
            reference = source.network.with_extents((extent,)).framework("torch", 1)
            [wanted] = reference([whole[:extent]])
            np.testing.assert_allclose(network(whole[:extent]), wanted, atol=2e-5)


@pytest.mark.full
def test_numbers_that_a_call_did_not_compute_read_no_other_memory(file, target):
    source = source_of(file, "picked", x=(Buckets(range=(2, 6), count=2, name="batch"), 7, 24))
    dimension = source._dimension(1, target)
    lowered = source._lowered_network((6,), source.networks[1][1].network.layout, target)
    calls = [call for call in lowered.sequence.calls if call.kernel not in lowered.operators]
    [(call, other)] = [
        pair
        for pair in zip(calls, dimension.others, strict=True)
        if pair[0].arguments[0].shape == (6, 7, 32)
    ]
    opened = dimension.opened(lowered.functions[call.kernel], call, other).function
    function, is_open = open_axes.with_extent(opened)
    module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    main = tvm.compile(module, target="llvm", tir_pipeline=PIPELINE)["main"]
    rows = np.arange(6 * 7 * 32, dtype=np.float32).reshape(6, 7, 32)
    later = np.array([0, 1, 6, 7, 8, -1]), np.array([2, 6, 0, 7, 8, -1])
    arrays = [tvm.runtime.tensor(each) for each in (rows, *later, np.zeros((6, 32), np.float32))]
    main(*arrays, *[2] * is_open)
    wanted = rows[np.clip(later[0], 0, 5), np.clip(later[1], 0, 6)]
    np.testing.assert_array_equal(arrays[-1].numpy(), wanted)


def test_layers_with_the_same_functions_are_tried_once(file, target, monkeypatch):
    tried = []
    reads_later_elements = open_dimension._reads_later_elements

    def reading(function, call, *sizes):
        tried.append(call.kernel)
        return reads_later_elements(function, call, *sizes)

    monkeypatch.setattr(open_dimension, "_reads_later_elements", reading)
    source = source_of(file, "summed", x=(1, Buckets(range=(2, 8), count=2, name="length"), 4))
    for _ in range(2):
        assert source._dimension(1, target) is not None
    assert len(tried) == len(set(tried)) > 0


@given(st.integers(1, 50), st.integers(1, 400))
def test_fewer_buckets_hold_each_extent(least, more):
    axis = Buckets(range=(least, least + more))
    kept = open_buckets(axis.buckets, axis.distribution)
    assert set(kept) <= set(axis.buckets)
    assert kept[-1] == least + more
