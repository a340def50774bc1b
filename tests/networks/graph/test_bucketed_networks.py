"""Networks in buckets of shapes end to end: one folder, which dispatches, pads and is verified."""

import json

import attrs
import chameleon_networks
import numpy as np
import pytest
from chameleon_core._errors import ConfigError
from chameleon_core._network_result import NetworkResult
from chameleon_networks._artifact.dispatch import all_padding_tests, timed_extents
from chameleon_networks._checks.padding import check_padding, check_pads
from chameleon_networks._delivery import buckets
from chameleon_networks._delivery.buckets import summed
from chameleon_networks._frontends import bucketed as bucketed_module
from chameleon_networks._frontends.bucketed import BucketedFrontend, make_frontend
from chameleon_networks._frontends.network import NetworkFrontend
from chameleon_networks._importers.options import OnnxOptions, TorchOptions
from chameleon_networks._shapes import Buckets
from marks import full

from ..masked import NETWORK, masked, masked_along  # noqa: TID252 - shared by folders
from ..onnx_files import onnx_file  # noqa: TID252
from ..precision.conftest import NoTrials  # noqa: TID252 - what measures nothing

pytestmark = pytest.mark.usefixtures("forked_networks")


@pytest.fixture(scope="module")
def networks(tmp_path_factory):
    path = tmp_path_factory.mktemp("networks") / "net.py"
    path.write_text(NETWORK)
    return path


@pytest.fixture(scope="module")
def delivered(networks, delivery_into, tmp_path_factory):
    source = masked(networks, 4, 12, pad=0.0)
    delivery = delivery_into(source, tmp_path_factory.mktemp("run") / "network")
    result = source.deliver(delivery)
    assert result.failure is None
    return source, delivery, result


@pytest.mark.full
def test_a_folder_has_a_network_for_each_bucket(delivered):
    source, delivery, result = delivered
    manifest = json.loads((delivery.folder / "manifest.json").read_text())
    assert [entry["name"] for entry in manifest["buckets"]] == ["length=4", "length=12"]
    [dimension] = manifest["dimensions"]
    assert dimension == {
        "name": "length",
        "buckets": [4, 12],
        "axes": [[0, 1, 0.0], [1, 1, 0.0]],
        "outputs": [[0, 1, 1]],
    }
    assert {**manifest["latency"], "folder": str(delivery.folder)} == result.to_json()
    weights = {winner.task.key: winner.task.weight for winner in delivery.winners}
    counted = dict.fromkeys(weights, 0)
    for bucket in manifest["buckets"]:
        own = json.loads((delivery.folder / bucket["folder"] / "manifest.json").read_text())
        for task in own["tasks"]:
            counted[task["key"]] += task["occurrences"]
        assert own["verification"]["max_relative_error"] < 1e-5
    assert counted == weights, "each bucket has its own occurrences, and its own tasks alone"
    rows = result.buckets
    assert [row.shapes for row in rows] == [
        {"ids": (1, 4), "mask": (1, 4)},
        {"ids": (1, 12), "mask": (1, 12)},
    ]
    names = {winner.task.name for winner in delivery.winners}
    assert {kernel.name for kernel in result.kernels if kernel.tuned} == names
    assert source.network.options.compare is False
    assert result.latency_seconds is None


@pytest.mark.full
def test_weights_that_are_the_same_are_there_once(delivered):
    _, delivery, _ = delivered
    manifest = json.loads((delivery.folder / "manifest.json").read_text())
    assert manifest["shared_bytes"] >= 100 * 16 * 4, "the embedding at least"
    assert [file.parent.name for file in delivery.folder.rglob("weights.bin")] == ["network"]


def test_tasks_of_both_buckets_are_one_where_they_are_the_same(networks, target):
    source = masked(networks, 4, 12, pad=0.0)
    tasks = {task.name: task.weight for task in source.tasks(target)}
    assert tasks == {"hidden 16x32 @4": 1, "head 32x8": 2, "hidden 16x32 @12": 1}
    assert [task.name for task in source.named_tasks(target)] == list(tasks)


SCRIPT = """
import logging
import sys
import numpy as np
from load import load

logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s", stream=sys.stdout)
network = load()
ids = np.arange(12)[None]
mask = np.ones((1, 12), "float32")
whole = network(ids, mask)
part = network(ids[:, :7], mask[:, :7])
print([one.shape for one in whole], [one.shape for one in part])
print(np.abs(whole[0][:, :7] - part[0]).max() < 1e-5)
print(network.plan(ids[:, :4], mask[:, :4]))
print([name for name in sys.modules if name.startswith("chameleon")])
try:
    network(np.zeros((1, 13), int), np.zeros((1, 13)))
except ValueError as error:
    print(str(error)[:43])
"""


@pytest.mark.full
def test_a_fresh_process_needs_tvm_alone(delivered, run_python):
    _, delivery, _ = delivered
    plan = "length 7 is padded to 12, of which 7 are computed"
    assert run_python(SCRIPT, cwd=delivery.folder).splitlines() == [
        "chameleon.network: ids [1, 12], mask [1, 12]: bucket length=12 is run as it is",
        f"chameleon.network: ids [1, 7], mask [1, 7]: {plan}",
        "[(1, 12, 32), (1, 8)] [(1, 7, 32), (1, 8)]",
        "True",
        "bucket length=4 is run as it is",
        "[]",
        "no bucket takes ids [1, 13], mask [1, 13]; ",
    ]


@pytest.mark.full
@pytest.mark.parametrize("length", [1, 4, 9, 12])
def test_answers_are_the_frameworks_for_any_length(delivered, length):
    source, delivery, _ = delivered
    other = source.network.with_extents((length,))
    inputs = other.samples(np.random.default_rng(3))
    expected = other.framework("torch", 1)(inputs)
    got = chameleon_networks.load(delivery.folder)(*inputs)
    for output, wanted in zip(got, expected, strict=True):
        np.testing.assert_allclose(output, wanted, atol=1e-5 * np.abs(wanted).max())


def _bucketed(file, shapes):
    network = make_frontend(OnnxOptions(source=str(file), shapes=shapes, compare=False))
    assert isinstance(network, BucketedFrontend)
    return network


def _mean(folder):
    """A product and a mean along an axis, which padding changes."""
    text = """(float[1, n, 8] x) => (float[1, 8] y) {
        z = MatMul(x, w)
        y = ReduceMean <axes = [1], keepdims = 0> (z)
    }"""
    weights = np.random.default_rng(0).standard_normal((8, 8), np.float32)
    file = onnx_file(folder / "mean.onnx", text, opsets='"" : 17', w=weights)
    return _bucketed(file, {"x": (1, Buckets(buckets=(4, 8), pad=0.0), 8)})


def _convolved(folder, *extents):
    """Batches of images that are convolved, which padding does not change."""
    text = """(float[n, 3, 6, 6] "image.in") => (float[n, 8, 6, 6] y) {
        c = Conv <pads = [1, 1, 1, 1]> ("image.in", w)
        y = Relu(c)
    }"""
    weights = np.random.default_rng(0).standard_normal((8, 3, 3, 3), np.float32)
    file = onnx_file(folder / "convolved.onnx", text, w=weights)
    return _bucketed(file, {"image.in": (Buckets(buckets=extents, pad=0.0), 3, 6, 6)})


WORDS = r"padding changes the answers: with axis 1 of x 1 padded to 4, its outputs are off by"


def test_padding_that_changes_the_answers_is_refused_before_tuning(tmp_path):
    with pytest.raises(ConfigError, match=WORDS) as caught:
        check_padding(_mean(tmp_path).network, 1)
    assert "mask" in str(caught.value.hint)


BRANCHING = """
import torch


class Branching(torch.nn.Module):
    def forward(self, x):
        total = x.sum(1)
        return -total if {branch} else total


def make():
    return Branching(), (torch.ones(1, 24),)
"""


@pytest.mark.full
@pytest.mark.parametrize(
    ("branch", "asked"),
    [
        ("x.shape[1] <= 16", "13 padded to 24"),
        ("x.shape[1] == 11", "11 padded to 12"),
        ("14 < x.shape[1] < 17", "15 padded to 24"),
    ],
)
def test_a_branch_by_the_length_inside_of_a_bucket_is_refused(tmp_path, branch, asked):
    file = tmp_path / "branching.py"
    file.write_text(BRANCHING.format(branch=branch))
    shapes = {"x": (1, Buckets(buckets=(12, 24), pad=0.0, name="length"))}
    source = make_frontend(TorchOptions(source=f"{file}:make", shapes=shapes, compare=False))
    with pytest.raises(ConfigError, match=f"padding changes the answers: with length {asked}"):
        check_padding(source.network, 1)
    assert source.network.padding_checked is False


@pytest.mark.full
def test_lengths_that_the_framework_refuses_are_not_tested(tmp_path):
    file = tmp_path / "branching.py"
    file.write_text(BRANCHING.format(branch="x.unfold(1, 3, 1) is None"))
    shapes = {"x": (1, Buckets(buckets=(12, 24), pad=0.0, name="length"))}
    source = make_frontend(TorchOptions(source=f"{file}:make", shapes=shapes, compare=False))
    [said] = check_padding(source.network, 1)
    assert "length 1 padded" not in said
    assert "length 11 padded to 12, length 13 padded to 24" in said


@pytest.mark.parametrize("extremum", ["Max", full("Min")])
def test_padding_beside_numbers_of_one_sign(tmp_path, extremum):
    # The zeros change no extremum of numbers with both signs.
    text = f"""(float[1, n] x) => (float[1] y) {{
        y = Reduce{extremum} <axes = [1], keepdims = 0> (x)
    }}"""
    file = onnx_file(tmp_path / "extremum.onnx", text, opsets='"" : 17')
    source = _bucketed(file, {"x": (1, Buckets(buckets=(16, 64), pad=0.0))})
    with pytest.raises(ConfigError, match="padding changes the answers"):
        check_padding(source.network, 1)


@pytest.mark.long
def test_padding_that_changes_the_answers_is_not_delivered(delivery_into, tmp_path, monkeypatch):
    monkeypatch.setattr(BucketedFrontend, "_dimension", lambda *_: None)
    source = _mean(tmp_path)
    result = source.deliver(delivery_into(source, tmp_path / "network"))
    assert result.failure.startswith("the network is not delivered: padding changes")
    assert "leave out `pad`" in result.failure
    assert not (tmp_path / "network").exists()


def test_padding_by_a_number_that_an_input_cannot_hold(networks):
    source = masked(networks, 4, 12, pad=0.5)
    with pytest.raises(ConfigError, match=r"ids is of int64 and cannot be padded with 0\.5"):
        check_pads(source.network)


def test_without_padding_there_is_nothing_to_check(networks):
    assert check_padding(masked(networks, 4, 12, pad=None).network, 1) == []


@pytest.mark.long
def test_a_bucket_that_fails_is_named_and_nothing_delivered(
    networks, delivery_into, tmp_path, doubling
):
    source = masked(networks, 4, 12, pad=None)
    delivery = delivery_into(source, tmp_path / "network")
    doubling(lambda _, fusion: fusion.spec.input == (12, 16))
    result = source.deliver(delivery)
    assert result.failure.startswith("bucket length=12: the network is not delivered")
    assert not delivery.folder.exists()


@pytest.mark.long
def test_weights_that_got_lost_on_the_way_are_not_delivered(
    networks, delivery_into, tmp_path, monkeypatch
):
    source = masked(networks, 4, 12, pad=None)
    honest = buckets.share_weights

    def lying(folder, buckets):
        saved = honest(folder, buckets)
        bytes_of = np.fromfile(folder / "weights.bin", np.uint8)
        bytes_of[bytes_of.size // 2 :] = 0
        bytes_of.tofile(folder / "weights.bin")
        return saved

    monkeypatch.setattr(buckets, "share_weights", lying)
    result = source.deliver(delivery_into(source, tmp_path / "network"))
    assert "is not what it was alone" in result.failure
    assert "is damaged: its content was changed" in result.failure
    assert not (tmp_path / "network").exists()


@pytest.mark.full
def test_each_bucket_is_checked(tmp_path, monkeypatch):
    asked = []

    def checked(self, target, threads, earlier):
        assert (target, threads) == ("llvm", 2)
        asked.append((self.network.shapes["image.in"][0], earlier))
        return {"summary": "it compiles", "loops": [len(asked)]}

    monkeypatch.setattr(NetworkFrontend, "check", checked)
    monkeypatch.setattr(BucketedFrontend, "_computes_parts", lambda *_: False)
    report = _convolved(tmp_path, 4, 12).check("llvm", 2, None)
    assert report["summary"] == (
        "each bucket: it compiles; padding keeps the answers ("
        "axis 0 of image.in 1 padded to 4, axis 0 of image.in 3 padded to 4, "
        "axis 0 of image.in 5 padded to 12, axis 0 of image.in 8 padded to 12, "
        "axis 0 of image.in 11 padded to 12)"
    )
    asked.clear()
    again = _convolved(tmp_path, 4, 12).check("llvm", 2, json.loads(json.dumps(report)))
    assert again == report
    assert [extent for extent, _ in asked] == [4, 12]
    assert [earlier["loops"] for _, earlier in asked] == [[1], [2]]
    report.pop("exact")  # as earlier versions wrote it
    assert _convolved(tmp_path, 4, 12).check("llvm", 2, report)["padding"] == report["padding"]

    def refused(self, *_):
        if self.network.shapes["image.in"][0] == 12:
            raise ConfigError("it cannot be compiled", hint="Write it otherwise.")

    monkeypatch.setattr(NetworkFrontend, "check", refused)
    with pytest.raises(ConfigError, match=r"bucket .*12: it cannot be compiled") as caught:
        _convolved(tmp_path, 4, 12).check("llvm", 2, None)
    assert caught.value.hint == "Write it otherwise."


def test_what_was_settled_is_recalled_for_each_bucket(networks):
    settled = masked(networks, 4, 12, pad=None).decide(NoTrials("llvm"))
    assert settled["summary"] == "each bucket: NHWC, since there is no convolution"
    other = json.loads(json.dumps(settled))
    other["buckets"]["length=12"]["layout"] = "NCHW"
    again = masked(networks, 4, 12, pad=None)
    again.restore(other)
    assert [network.choice.layout for _, network in again.networks] == ["NHWC", "NCHW"]


def test_batches_of_an_onnx_file(delivery_into, tmp_path):
    source = _convolved(tmp_path, 1, 4)
    assert source.deliver(delivery_into(source, tmp_path / "network")).failure is None
    network = chameleon_networks.load(tmp_path / "network", threads=2)
    assert network.threads == 2
    images = np.random.default_rng(1).standard_normal((3, 3, 6, 6)).astype(np.float32)
    assert network.plan(images) == "axis 0 of image.in 3 is padded to 4, of which 3 are computed"
    [expected] = source.network.with_extents((3,)).framework("onnxruntime", 1)([images])
    np.testing.assert_allclose(network(images), expected, atol=1e-5 * np.abs(expected).max())


@pytest.mark.full
def test_a_range_takes_inputs_of_any_length(networks, delivery_into, tmp_path):
    source = masked_along(networks, Buckets(range=(1, 40), count=4, name="length"))
    result = source.deliver(delivery_into(source, tmp_path / "network", guessed=True))
    assert result.failure is None
    network = chameleon_networks.load(tmp_path / "network", threads=2)
    rng = np.random.default_rng(2)
    for length in range(1, 41):
        ids = rng.integers(0, 100, (1, length))
        mask = np.ones((1, length), np.float32)
        expected = source.network.with_extents((length,)).framework("torch", 1)([ids, mask])
        for own, wanted in zip(network(ids, mask), expected, strict=True):
            np.testing.assert_allclose(own, wanted, atol=1e-5 * np.abs(wanted).max())


@pytest.mark.full
def test_a_branch_inside_of_a_range_is_refused(tmp_path):
    file = tmp_path / "branching.py"
    # Of two branches, the export of the longest input meets the first one alone.
    branch = "(x.shape[1] <= 100 and x.shape[1] > 37)"
    file.write_text(BRANCHING.format(branch=branch))
    shapes = {"x": (1, Buckets(range=(1, 200), count=3, name="length"))}
    source = make_frontend(TorchOptions(source=f"{file}:make", shapes=shapes, compare=False))
    asked = {test.asked for test in all_padding_tests(source.network)}
    assert {(100,), (101,), (37,), (38,)} <= asked
    with pytest.raises(ConfigError, match="padding changes the answers: with length"):
        check_padding(source.network, 1)


def test_of_a_range_the_ends_are_checked_before_tuning(networks, monkeypatch):
    checked = []

    def check(self, *_):
        checked.append(self.network.shapes["ids"])
        self.network.cancellations = {"digest": (len(checked), 1)}
        return {"summary": "it compiles"}

    monkeypatch.setattr(NetworkFrontend, "check", check)
    monkeypatch.setattr(bucketed_module, "check_padding", lambda *_: [])
    monkeypatch.setattr(BucketedFrontend, "_computes_parts", lambda *_: False)
    source = masked_along(networks, Buckets(range=(1, 40), count=4, name="length"))
    assert source.check("llvm", 2, None)["summary"] == "each bucket: it compiles"
    assert checked == [source.networks[0][0].shapes["ids"], (1, 40)]
    known = [own.network.cancellations for _, own in source.networks]
    assert known == [{"digest": (2, 1)}] * 4, "each bucket has the same weights"


def test_a_range_has_the_sums_of_its_timed_sizes(networks):
    source = masked_along(networks, Buckets(range=(1, 40), count=3, name="length"))
    first, *others = [bucket.name for bucket, _ in source.network.networks]
    plain = NetworkResult(max_relative_error=1e-6, reference="torch", rivals={})
    timed = attrs.evolve(plain, latency_seconds=0.5, rivals={"torch": 2.0})
    results = {first: timed, **dict.fromkeys(others, plain)}
    [probe, *_] = [test for test in timed_extents(source.network.dimensions) if test.words]
    total = summed(source.network, results, {name: {} for name in results}, [(probe, timed)])
    assert (total.latency_seconds, total.ratio) == (1.0, 4.0)
    assert total.each == " of each size that was timed"
    assert [row.name for row in total.buckets] == [first, *others, probe.words]
    assert [row.ratio for row in total.buckets] == [4.0, *[None] * len(others), 4.0]
    assert total.buckets[-1].shapes["ids"] == (1, *probe.asked)


def test_latencies_are_sums_of_what_ran_in_every_bucket(networks):
    source = masked(networks, 4, 12, pad=None)
    short = NetworkResult(
        latency_seconds=0.5,
        untuned_seconds=2.0,
        rivals={"torch": 1.0, "openvino": 0.25},
        max_relative_error=1e-6,
        reference="torch",
    )
    long = attrs.evolve(short, rivals={"torch": 2.0}, left_out={"openvino": "it failed"})
    results = {"length=4": short, "length=12": long}
    total = summed(source.network, results, {"length=4": {}, "length=12": {}})
    assert total.latency_seconds == 1.0
    assert total.untuned_seconds == 4.0
    assert total.rivals == {"torch": 3.0}
    assert total.left_out == {"openvino": "bucket length=12: it failed"}
    assert [row.ratio for row in total.buckets] == [0.5, 4.0]
    unknown = {**results, "length=12": attrs.evolve(long, latency_seconds=None)}
    names = {"length=4": {}, "length=12": {}}
    assert summed(source.network, unknown, names).latency_seconds is None
