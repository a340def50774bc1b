"""Shapes that a pipeline asks for: fixed ones, and several extents for one axis."""

import json
import re

import attrs
import numpy as np
import pytest
import torch
from chameleon_core._errors import ChameleonError, ConfigError
from chameleon_core._pipeline.load import from_dict
from chameleon_networks._evaluation.messages import describe_network, network_from
from chameleon_networks._frontends.bucketed import BucketedFrontend, make_frontend
from chameleon_networks._frontends.network import NetworkFrontend
from chameleon_networks._importers.options import BuiltinOptions, OnnxOptions, TorchOptions
from chameleon_networks._importers.sources import BuiltinNetwork, TorchNetwork
from chameleon_networks._shapes import Buckets, buckets_of, converter, dimensions_of

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
            {"x": [{"buckets": [1, 2, 3, 4, 5]}, {"buckets": [6, 7, 8, 9]}]},
            "make 20 combinations, and 16 is the most",
        ),
    ],
)
def test_what_no_buckets_are(shapes, words):
    with pytest.raises(ChameleonError, match=words):
        _options(shapes)


def test_options_with_shapes_travel_to_other_processes():
    length = Buckets(buckets=(64, 128), pad=0.0)
    options = OnnxOptions(source="net.onnx", shapes={"ids": (1, 64), "mask": (1, length)})
    sent = json.loads(json.dumps(attrs.asdict(options)))
    assert converter().structure(sent, OnnxOptions) == options


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
    network = TorchNetwork(TorchOptions(source=str(free), shapes=shapes))
    inputs = network.samples(np.random.default_rng(0))
    assert [array.shape for array in inputs] == [(1, 4), (1, 4)]
    assert network.framework("torch", 1)(inputs)[0].shape == (1, 4, 4)


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
