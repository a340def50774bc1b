"""Shapes that a pipeline asks for: fixed ones, and several extents for one axis."""

import itertools
import json
import re

import attrs
import numpy as np
import pytest
import structlog
import torch
from chameleon_core._errors import ChameleonError, ConfigError
from chameleon_core._pipeline.load import from_dict
from chameleon_networks._evaluation.messages import describe_network, network_from
from chameleon_networks._frontends.bucketed import BucketedFrontend, make_frontend
from chameleon_networks._frontends.lazy import warn_of_padding
from chameleon_networks._frontends.network import NetworkFrontend
from chameleon_networks._importers.options import BuiltinOptions, OnnxOptions, TorchOptions
from chameleon_networks._importers.sources import BuiltinNetwork, TorchNetwork
from chameleon_networks._shapes import (
    Buckets,
    buckets_of,
    converter,
    dimensions_of,
)
from hypothesis import given
from hypothesis import strategies as st

NETWORKS = """
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(9, 8)
        self.dense = torch.nn.Linear(8, 4)

    def forward(self, ids, mask=None):
        return self.dense(self.embedding(ids)) * mask[..., None]


def net():
    return Net(), ((torch.arange(6)[None],), {"mask": torch.ones(1, 6)})
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    path = tmp_path_factory.mktemp("networks") / "net.py"
    path.write_text(NETWORKS)
    return f"{path}:net"


def _options(written):
    pipeline = {"model": {"onnx": {"file": "net.onnx", "shapes": written}}, "output": "run"}
    return from_dict(pipeline).model.options


def test_a_pipeline_writes_buckets():
    length = {"buckets": [128, 64], "pad": 0, "name": "length"}
    options = _options({"ids": [1, length], "image": [{"buckets": [1, 8]}, 3, 8]})
    assert options.shapes["ids"] == (1, Buckets(buckets=(64, 128), pad=0.0, name="length"))
    length_of, batch_of = dimensions_of(options.shapes)
    assert (length_of.name, length_of.buckets, length_of.padded) == ("length", (64, 128), True)
    assert (batch_of.name, batch_of.buckets, batch_of.padded) == (None, (1, 8), False)
    assert str(batch_of) == "axis 0 of image"
    buckets = buckets_of(options.shapes)
    assert [bucket.name for bucket in buckets] == [
        "length=64-1",
        "length=64-8",
        "length=128-1",
        "length=128-8",
    ]
    assert buckets[1].shapes == {"ids": (1, 64), "image": (8, 3, 8)}


def test_axes_of_the_same_extents_or_name_vary_together():
    either = Buckets(buckets=(2, 4))
    assert len(dimensions_of({"a": (1, either), "b": (either,)})) == 1
    batch, length = attrs.evolve(either, name="batch"), attrs.evolve(either, name="length")
    assert len(buckets_of({"a": (batch, length), "b": (batch,)})) == 4
    [both] = dimensions_of({"a": (3, either), "b": (length,)})
    assert (both.name, [axis.input for axis in both.axes]) == ("length", ["b", "a"])
    assert len(dimensions_of({"a": (batch, length), "b": (either,)})) == 3, "it may be either"
    assert [bucket.name for bucket in buckets_of({"a": (3, 4)})] == [""]


@pytest.mark.parametrize(
    ("shapes", "words"),
    [
        ({"x": [{"buckets": []}]}, "different whole numbers above 0"),
        ({"x": [{"buckets": [4, 0]}]}, "different whole numbers above 0"),
        ({"x": [{"buckets": [4, 4]}]}, "different whole numbers above 0"),
        ({"x": [{"buckets": [4], "name": "a/b"}]}, "a word of letters"),
        ({"x": [{"bucket": [4]}]}, "did you mean 'buckets'"),
        ({"x": [1.5]}, "an integer or a mapping"),
        ({"x": [0, 4]}, "the shape of 'x' has an extent below 1"),
        (
            {"x": [{"buckets": [4], "name": "n"}], "y": [{"buckets": [8], "name": "n"}]},
            r"'n' is \[4\] on axis 0 of x and \[8\] on axis 0 of y",
        ),
        (
            {"x": [{"buckets": [4, 8], "pad": 0}], "y": [{"buckets": [4, 8]}]},
            "axis 0 of x and axis 0 of y vary together, and only one of them has a `pad`",
        ),
        ({"x": [{"buckets": [4], "pad": 0}]}, "a `pad` and one bucket alone"),
        (
            {"x": [{"buckets": [*range(1, 6)]}, {"buckets": [*range(6, 20)]}]},
            "make 70 combinations, and 64 is the most",
        ),
        ({"x": [{"pad": 0}]}, "needs `buckets`"),
        ({"x": [{"buckets": [4], "sizes": [4]}]}, "need a `range`"),
        ({"x": [{"range": [8, 8]}]}, "the smallest extent, at least 1, and a larger one"),
        ({"x": [{"range": [0, 8]}]}, "the smallest extent, at least 1, and a larger one"),
        ({"x": [{"range": [1, 8], "sizes": [9]}]}, "`sizes` outside of its range, 1 to 8"),
        ({"x": [{"range": [1, 8], "weights": [1]}]}, "a weight above 0 for each"),
        ({"x": [{"range": [1, 8], "count": 1}]}, "a `count` of at least 2"),
        ({"x": [{"range": [1, 8], "buckets": [4, 7]}]}, "several `buckets` up to 8"),
    ],
)
def test_what_no_buckets_are(shapes, words):
    with pytest.raises(ChameleonError, match=words):
        _options(shapes)


RANGES = st.tuples(st.integers(1, 40), st.integers(1, 400)).map(lambda r: (r[0], r[0] + r[1]))


@given(RANGES, st.integers(2, 9), st.data())
def test_buckets_of_a_range_hold_each_of_its_extents(ends, count, data):
    least, most = ends
    sizes = data.draw(st.lists(st.integers(least, most), max_size=4, unique=True))
    axis = Buckets(range=ends, count=count, sizes=tuple(sizes))
    assert 2 <= len(axis.buckets) <= count
    assert axis.buckets == tuple(sorted(set(axis.buckets)))
    assert axis.buckets[0] >= least
    assert axis.buckets[-1] == most, "the largest input has a bucket"
    assert set(axis.probes) <= set(axis.distribution)
    assert sum(axis.distribution.values()) == pytest.approx(1.0)


@pytest.mark.parametrize("sizes", [(9,), (1,), (1, 9)])
def test_a_range_whose_calls_have_one_size_has_two_buckets(sizes):
    axis = Buckets(range=(1, 9), sizes=sizes)
    assert set(sizes) <= set(axis.buckets)
    assert len(axis.buckets) == 2
    assert axis.buckets[-1] == 9


def _lost(buckets, axis):
    """The share of time that padding takes, if time grows with the extent and a constant."""
    pairs = ((min(b for b in buckets if b >= own), own) for own in axis.distribution)
    shares = axis.distribution.values()
    return sum(w * ((b + 4) / (own + 4) - 1) for (b, own), w in zip(pairs, shares, strict=True))


@given(st.integers(2, 30), st.integers(2, 4), st.booleans())
def test_no_other_buckets_lose_less(most, count, uneven):
    sizes = (1, most // 2 + 1, most) if uneven and most > 2 else ()
    axis = Buckets(range=(1, most), count=count, sizes=sizes, weights=(1.0, 5.0, 1.0)[: len(sizes)])
    kept = len(axis.buckets)
    smaller = {*range(1, 17), 24, *sizes}
    others = itertools.combinations(sorted(own for own in smaller if own < most), kept - 1)
    least = min(_lost((*other, most), axis) for other in others)
    assert _lost(axis.buckets, axis) == pytest.approx(least)


def test_frequent_sizes_are_buckets():
    axis = Buckets(range=(1, 512), sizes=(77, 200, 12), weights=(5, 1, 1))
    assert {12, 77, 200} < set(axis.buckets)
    assert axis.probes == (12, 77, 200)
    assert axis.pad == 0.0


@pytest.mark.parametrize(
    ("axis", "extent", "padded", "advice"),
    [
        ({"buckets": [1, 32, 128], "pad": 0}, 2, 32, "`range: [1, 128]`"),
        ({"buckets": [32, 128], "pad": 0}, 1, 32, "`range: [1, 128]`"),
    ],
)
def test_slow_padding_is_warned_of(axis, extent, padded, advice):
    with structlog.testing.capture_logs() as logs:
        warn_of_padding(_options({"x": [1, {**axis, "name": "length"}]}).shapes)
    [entry] = logs
    assert entry["event"] == "padding_is_slow"
    assert (entry["extent"], entry["takes_the_time_of"]) == (extent, padded)
    assert advice in entry["hint"]


@pytest.mark.parametrize(
    "axis", [{"buckets": [1, 2, 4, 8], "pad": 0}, {"buckets": [32, 128]}, {"range": [1, 512]}]
)
def test_other_buckets_are_not_warned_of(axis):
    with structlog.testing.capture_logs() as logs:
        warn_of_padding(_options({"x": [1, axis]}).shapes)
    assert logs == []


def test_options_with_shapes_travel_to_other_processes():
    length = Buckets(buckets=(64, 128), pad=0.0)
    width = Buckets(range=(3, 100), sizes=(4, 50), weights=(1.0, 2.0), name="width")
    shapes = {"ids": (1, 64, width), "mask": (1, length)}
    options = OnnxOptions(source="net.onnx", shapes=shapes)
    sent = json.loads(json.dumps(attrs.asdict(options)))
    assert converter().structure(sent, OnnxOptions) == options
    sent["shapes"]["ids"][2]["buckets"] = [10, 100]
    known = converter().structure(sent, OnnxOptions)
    assert known.shapes["ids"][2].buckets == (10, 100), "buckets of an earlier version stay"


def test_examples_are_cropped_or_repeated(source):
    def ids(length):
        shapes = {"ids": (2, length), "mask": (2, length)}
        net = TorchNetwork(TorchOptions(source=source, shapes=shapes))
        net = network_from(json.loads(json.dumps(describe_network(net))))
        first, mask = net.program.example_inputs[0][0], net.program.example_inputs[1]["mask"]
        assert first.shape == mask.shape == (2, length)
        assert net.input_names() == ["ids", "mask"]
        return first[1].tolist()

    assert ids(4) == [0, 1, 2, 3]
    assert ids(8) == [0, 1, 2, 3, 4, 5, 0, 1]


def test_builtin_networks_take_shapes():
    options = BuiltinOptions(network="resnet_small", shapes={"image": (2, 3, 16, 24)})
    [images] = BuiltinNetwork(options).samples(np.random.default_rng(0))
    assert images.shape == (2, 3, 16, 24)


@pytest.mark.parametrize(
    ("shapes", "words", "hint"),
    [
        ({"idz": (1, 4)}, "no input 'idz'; did you mean 'ids'", "ids: .*mask: "),
        ({"ids": (4,)}, r"is \[1, 6\] in the example, which cannot be made \[4\]", "as many"),
        ({"ids": (1, 4)}, "torch cannot export.*expected shape", r"torch\.export\.export"),
    ],
)
def test_shapes_that_a_network_does_not_take(source, shapes, words, hint):
    with pytest.raises(ConfigError, match=words) as caught:
        TorchNetwork(TorchOptions(source=source, shapes=shapes)).samples(np.random.default_rng(0))
    assert re.search(hint, str(caught.value.hint), re.IGNORECASE)


def test_saved_programs_need_dynamic_shapes(source, tmp_path):
    program = TorchNetwork(TorchOptions(source=source)).program
    shapes = {"ids": (1, 4), "mask": (1, 4)}
    fixed, free = tmp_path / "fixed.pt2", tmp_path / "free.pt2"
    torch.export.save(program, fixed)
    with pytest.raises(ConfigError, match="saved with 6 as axis 1 of 'ids', and 4 is") as caught:
        _ = TorchNetwork(TorchOptions(source=str(fixed), shapes=shapes)).program
    assert "dynamic_shapes" in str(caught.value.hint)
    length = {1: torch.export.Dim("length", min=2, max=64)}
    positional, keywords = program.example_inputs
    from_source = {"ids": length, "mask": length}
    namespace = {}
    exec(NETWORKS, namespace)  # noqa: S102 - the text above
    torch.export.save(
        torch.export.export(
            namespace["Net"]().eval(), positional, keywords, dynamic_shapes=from_source
        ),
        free,
    )
    for length in (4, 6):  # the example's own length is 6
        shapes = {"ids": (1, length), "mask": (1, length)}
        network = TorchNetwork(TorchOptions(source=str(free), shapes=shapes))
        inputs = network.samples(np.random.default_rng(0))
        assert [array.shape for array in inputs] == [(1, length), (1, length)]
        assert network.framework("torch", 1)(inputs)[0].shape == (1, length, 4)
        assert not network.program.range_constraints, "no axis is open"


def test_nothing_in_buckets_is_an_ordinary_network():
    options = BuiltinOptions(network="resnet_small", shapes={"image": (1, 3, 16, 16)})
    assert type(make_frontend(options)) is NetworkFrontend
    several = attrs.evolve(options, shapes={"image": (Buckets(buckets=(1, 8)), 3, 16, 16)})
    frontend = make_frontend(several)
    assert isinstance(frontend, BucketedFrontend)
    assert [bucket.name for bucket, _ in frontend.networks] == ["1", "8"]
    assert [network.shapes for _, network in frontend.network.networks] == [
        {"image": (1, 3, 16, 16)},
        {"image": (8, 3, 16, 16)},
    ]
