"""A detector whose number of boxes depends on the image is delivered, and returns all of them."""

import ctypes
import json

import chameleon_networks
import numpy as np
import onnxruntime
import pytest
from chameleon_core._errors import ConfigError
from chameleon_networks._artifact.load import load
from chameleon_networks._artifact.writer import read_manifest, write_manifest
from chameleon_networks._delivery.mixed_precision.decisions import PrecisionDecisions
from chameleon_networks._export.bundles import write_c_bundle, write_onnx_file
from chameleon_networks._frontends.bucketed import make_frontend
from chameleon_networks._frontends.network import NetworkFrontend
from chameleon_networks._importers.options import OnnxOptions
from chameleon_networks._importers.sources import OnnxNetwork
from chameleon_networks._precision.section import Precision
from chameleon_networks._shapes import Buckets

from ..onnx_files import onnx_file  # noqa: TID252 - shared by folders

pytestmark = pytest.mark.usefixtures("forked_networks")

DETECTOR = """(float[1, 3, 16, 16] image) => (float[n, 4] boxes, float[n] best, int64[n] label) {
    features = Conv <strides = [2, 2], pads = [1, 1, 1, 1]> (image, filters)
    flat = Reshape (features, flat_shape)
    raw, logits = Split <axis = 1> (flat, parts)
    rows = Transpose <perm = [0, 2, 1]> (raw)
    places, raw_sizes = Split <axis = 2> (rows, halves)
    sizes = Exp (raw_sizes)
    all_boxes = Concat <axis = 2> (places, sizes)
    scores = Sigmoid (logits)
    [suppress] chosen = NonMaxSuppression <center_point_box = 1> (
        all_boxes, scores, most, overlap, least
    )
    label = Gather <axis = 1> (chosen, one)
    box = Gather <axis = 1> (chosen, two)
    table = Squeeze (all_boxes, zeros)
    boxes = Gather <axis = 0> (table, box)
    offset = Mul (label, count)
    place = Add (offset, box)
    all_scores = Reshape (scores, vector)
    best = Gather <axis = 0> (all_scores, place)
}"""


@pytest.fixture(name="detector", scope="module")
def _detector(tmp_path_factory):
    rng = np.random.default_rng(0)
    weights = {
        "filters": rng.standard_normal((6, 3, 3, 3)).astype(np.float32) / 3,
        "flat_shape": np.array([1, 6, 64]),
        "parts": np.array([4, 2]),
        "halves": np.array([2, 2]),
        "most": np.array([40]),
        "overlap": np.array([0.3], np.float32),
        "least": np.array([0.6], np.float32),
        "zeros": np.array([0]),
        "one": np.array(1),
        "two": np.array(2),
        "count": np.array(64),
        "vector": np.array([-1]),
    }
    return onnx_file(tmp_path_factory.mktemp("detector") / "detector.onnx", DETECTOR, **weights)


@pytest.fixture(name="folder", scope="module")
def _folder(detector, delivery_into, tmp_path_factory):
    source = NetworkFrontend(OnnxNetwork(OnnxOptions(source=str(detector), compare=False)))
    delivery = delivery_into(source, tmp_path_factory.mktemp("delivery") / "network")
    result = source.deliver(delivery)
    assert result.failure is None
    assert result.reference == "onnxruntime"
    return delivery.folder


def _images():
    rng = np.random.default_rng(7)
    images = [rng.standard_normal((1, 3, 16, 16)).astype(np.float32) for _ in range(4)]
    return [*images, np.zeros_like(images[0])]


def test_a_detector_returns_as_many_boxes_as_onnxruntime(folder, detector):
    network = chameleon_networks.load(folder)
    session = onnxruntime.InferenceSession(str(detector), providers=["CPUExecutionProvider"])
    sizes = []
    for image in _images():
        wanted = session.run(None, {"image": image})
        for own, other in zip(network(image), wanted, strict=True):
            assert (own.shape, own.dtype) == (other.shape, other.dtype)
            assert own.flags.c_contiguous
            np.testing.assert_allclose(own, other, rtol=1e-4, atol=1e-4)
        sizes.append(len(wanted[0]))
    assert sizes[-1] == 0
    assert len(set(sizes)) > 3
    assert [spec.shape for spec in network.outputs] == [("0..80", 4), ("0..80",), ("0..80",)]


def test_a_damaged_list_of_counts_is_refused(folder, tmp_path):
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in folder.iterdir():
        if file.is_file():
            (copy / file.name).write_bytes(file.read_bytes())
    for counts in ([[[0, 2]]], [[[3, 0]]], [[[0]]], [[[0, 0]], [[1, 0]]], [3]):
        write_manifest(copy, {**read_manifest(folder), "counts": counts})
        with pytest.raises(RuntimeError, match=r"no network|other outputs"):
            load(copy)


def test_a_library_for_c_tells_the_count(folder, detector, tmp_path):
    write_c_bundle(folder, tmp_path, "detector")
    library = ctypes.CDLL(str(tmp_path / "libdetector.so"))
    library.detector_create.restype = ctypes.c_void_p
    handle = ctypes.c_void_p(
        library.detector_create(bytes(tmp_path / "weights.bin"), ctypes.c_int(1))
    )
    outputs = [
        np.empty(shape, dtype)
        for shape, dtype in [((80, 4), "f4"), (80, "f4"), (80, "i8"), (1, "i8")]
    ]
    session = onnxruntime.InferenceSession(str(detector), providers=["CPUExecutionProvider"])
    for image in _images():
        wanted, *_ = session.run(None, {"image": image})
        read, written = (
            (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))
            for arrays in ([image], outputs)
        )
        assert library.detector_run(handle, read, written) == 0
        assert outputs[-1] == len(wanted)
        np.testing.assert_allclose(outputs[0][: len(wanted)], wanted, rtol=1e-4, atol=1e-4)
    library.detector_destroy(handle)
    assert "int64_t *count0; /* int64 [1] */" in (tmp_path / "detector.h").read_text()
    assert json.loads((tmp_path / "manifest.json").read_text())["counts"] == [
        [[0, 0], [1, 0], [2, 0]]
    ]


def test_a_file_for_onnxruntime_is_refused(folder, tmp_path):
    with pytest.raises(ConfigError, match="sizes of outputs depend on values"):
        write_onnx_file(folder, tmp_path)


@pytest.fixture(name="chosen", scope="module")
def _chosen(tmp_path_factory):
    text = """(float[n, 4] x) => (int64[2, m] y) { z = MatMul (x, w) y = NonZero (z) }"""
    weights = np.eye(4, dtype=np.float32)
    return onnx_file(tmp_path_factory.mktemp("chosen") / "chosen.onnx", text, w=weights)


def test_buckets_of_shapes_are_refused(chosen, target):
    shapes = {"x": (Buckets(buckets=(2, 4)), 4)}
    source = make_frontend(OnnxOptions(source=str(chosen), shapes=shapes, compare=False))
    with pytest.raises(ConfigError, match="sizes of outputs depend on values, and buckets"):
        source.tasks(target)


def test_other_dtypes_are_refused(chosen, target):
    network = OnnxNetwork(OnnxOptions(source=str(chosen), shapes={"x": [2, 4]}, compare=False))
    decisions = PrecisionDecisions(network, Precision(type="bfloat16"))
    with pytest.raises(ConfigError, match=r"sizes of outputs .* depend on values, which other"):
        decisions.decide(target)
