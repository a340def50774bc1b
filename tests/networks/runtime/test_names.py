"""Inputs by position and by name, numbers that no dtype changes, and results as the model's."""

import copy
import json
import pickle
import re
import shutil
from collections import OrderedDict, namedtuple

import attrs
import numpy as np
import pytest
import torch
from chameleon_networks._artifact.load import Signature, load
from chameleon_networks._artifact.writer import read_manifest, write_manifest
from chameleon_networks._export.bundles import write_c_bundle
from chameleon_networks._frontends.bucketed import make_frontend
from chameleon_networks._frontends.network import NetworkFrontend
from chameleon_networks._graph.relax_utils import relax
from chameleon_networks._importers.options import OnnxOptions, TorchOptions
from chameleon_networks._importers.sources import network_of
from chameleon_networks._importers.torch.programs import returned_structure
from chameleon_networks._names import (
    c_names,
    output_names,
    python_names,
    signature_with_names,
)
from chameleon_networks._quantize.calibration_batches import user_samples
from chameleon_networks._shapes import Buckets
from programs import completed

from ..graph.sequence.conftest import deliverer  # noqa: TID252 - its helpers
from ..modules import module_of  # noqa: TID252 - shared by folders
from ..onnx_files import onnx_file  # noqa: TID252

IDS, MASK = np.arange(8).reshape(2, 4), np.float32([[1, 1, 0, 0], [1, 0, 0, 0]])
NAMED = signature_with_names(
    {
        "inputs": [{"shape": [2, 4], "dtype": kind} for kind in ("int64", "float32")],
        "outputs": [{"shape": [2, 4], "dtype": kind} for kind in ("float32", "int64")],
    },
    ["input.ids", "mask"],
    {"type": "Outputs", "keys": ["logits", "class"], "parts": ["logits", "class"]},
)
TAKES = r"; the network takes input_ids \(int64 \[2, 4\]\), mask \(float32 \[2, 4\]\)"


@pytest.fixture(scope="module")
def named(tmp_path_factory):
    """A folder whose manifest has names and a structure."""
    delivered = deliverer(tmp_path_factory.mktemp("named"))(
        module_of(
            lambda emit, ids, mask: (
                emit(relax.op.multiply(mask, relax.op.astype(ids, "float32"))),
                emit(relax.op.add(ids, ids)),
            ),
            ((2, 4), "int64"),
            ((2, 4), "float32"),
        )
    )
    manifest = read_manifest(delivered.folder)
    write_manifest(delivered.folder, {**manifest, **NAMED})
    return delivered.folder


@pytest.fixture(scope="module")
def network(named):
    with load(named) as loaded:
        yield loaded


@pytest.mark.parametrize(
    ("inputs", "by_name"),
    [
        ((IDS, MASK), {}),
        ((IDS,), {"mask": MASK}),
        ((), {"mask": MASK, "input_ids": IDS}),
        ((), {"mask": MASK, "input.ids": IDS}),  # the name in the model
        ((IDS.astype(np.uint8),), {"mask": MASK.astype(bool)}),
        ((IDS.tolist(),), {"mask": torch.from_numpy(MASK.astype(np.float64))}),
    ],
)
def test_inputs_come_by_position_or_by_name(network, inputs, by_name):
    outputs = network(*inputs, **by_name)
    np.testing.assert_array_equal(outputs.logits, IDS * MASK)
    np.testing.assert_array_equal(outputs.class_, 2 * IDS)
    first, second = outputs
    assert (first is outputs[0], second is outputs[1], len(outputs)) == (True, True, 2)


@pytest.mark.parametrize(
    ("inputs", "by_name", "said"),
    [
        ((), {}, "input input_ids and mask is missing"),
        ((IDS,), {}, "input mask is missing" + TAKES),
        ((IDS, MASK, MASK), {}, "3 arrays are too many" + TAKES),
        ((IDS,), {"masks": MASK}, "there is no input 'masks'" + TAKES),
        ((IDS,), {"input_ids": IDS}, "input input_ids is given twice" + TAKES),
        ((), {"input_ids": IDS, "input.ids": IDS}, "input input_ids is given twice"),
        (
            (MASK, IDS),
            {},
            "input_ids must hold int64, not float32; the array fits mask, so check the order",
        ),
        ((IDS, MASK[:1]), {}, r"mask must have shape \[2, 4\], not \[1, 4\]$"),
        ((IDS, MASK * np.float64(0.1)), {}, r"float32, not float64; .* \.astype\('float32'\)"),
        ((IDS, np.full((2, 4), 1e300)), {}, "mask must hold float32, not float64"),
        ((IDS, np.full((2, 4), 2**24 + 1)), {}, "mask must hold float32, not int64"),
        ((np.full((2, 4), 2**63, np.uint64), MASK), {}, "must hold int64, not uint64"),
        ((IDS + 0.0, MASK), {}, r"int64, not float64; .* \.astype\('int64'\)"),
    ],
)
def test_what_is_wrong_is_a_sentence(network, inputs, by_name, said):
    with pytest.raises(ValueError, match=said) as caught:
        network(*inputs, **by_name)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("value", "dtype", "wanted"),
    [
        (np.array([0, 255], np.int64), "uint8", [0, 255]),
        (np.array([0, 256], np.int64), "uint8", None),
        (np.array([-1], np.int8), "uint64", None),
        (np.array([1, 2]), "bool", None),
        (np.array([1, 0]), "bool", [True, False]),
        (np.array([np.nan, np.inf, 0.5]), "float16", [np.nan, np.inf, 0.5]),
        (np.array([65520.0]), "float16", None),
        (np.array([2**53, 2**53 + 1]), "float64", None),
        (np.array([2**53, -1]), "float64", [2**53, -1]),
        (np.array([0.5, 0.1]), "bfloat16", None),
        (np.array([0.5, 3.0], np.float32), "bfloat16", [0.5, 3]),
        ([0.1, 2.0], "float32", np.float32([0.1, 2])),  # a list has no dtype
        ([0, 300], "uint8", None),
    ],
)
def test_a_dtype_changes_no_number(value, dtype, wanted):
    tensor = {"name": "x", "shape": list(np.shape(value)), "dtype": dtype}
    signature = Signature({"inputs": [tensor], "outputs": []})
    if wanted is None:
        with pytest.raises(ValueError, match=f"x must hold {dtype}, not "):
            signature.array(0, value)
        return
    array = signature.array(0, value)
    assert array.dtype.name == dtype
    np.testing.assert_array_equal(array.astype(np.float64), np.float64(wanted))


def test_results_cross_processes_and_copies(network, run_python):
    outputs = network(IDS, MASK)
    again = pickle.loads(pickle.dumps(outputs))  # noqa: S301 - its own
    assert again._fields == ("logits", "class_")
    np.testing.assert_array_equal(copy.deepcopy(outputs).class_, outputs.class_)
    np.testing.assert_array_equal(again.class_, outputs.class_)
    text = f"import pickle; print(pickle.loads({pickle.dumps(outputs)!r}).class_[0].tolist())"
    assert run_python(text) == "[0, 2, 4, 6]\n"


def test_a_network_describes_its_inputs_and_outputs(network):
    assert [str(spec) for spec in network.inputs] == [
        "input_ids (int64 [2, 4])",
        "mask (float32 [2, 4])",
    ]
    assert [(spec.name, spec.source) for spec in network.outputs] == [
        ("logits", "logits"),
        ("class_", "class"),
    ]
    assert network.inputs[0].source == "input.ids"


def test_a_folder_of_an_earlier_version_returns_a_list(named, tmp_path):
    folder = shutil.copytree(named, tmp_path / "earlier")
    manifest = read_manifest(folder)
    del manifest["returns"]
    for tensor in (*manifest["inputs"], *manifest["outputs"]):
        del tensor["source"]
    for tensor in manifest["outputs"]:
        del tensor["name"]
    write_manifest(folder, manifest)
    with load(folder) as earlier:
        outputs = earlier(IDS, mask=MASK)
        assert [spec.name for spec in earlier.outputs] == ["output0", "output1"]
    assert type(outputs) is list
    np.testing.assert_array_equal(outputs[1], 2 * IDS)


@pytest.mark.parametrize(
    "returns",
    [2, "0", {"type": "set", "parts": [0, 1]}, {"type": "Outputs", "keys": ["a"]}]
    + [{"type": "Outputs", "keys": ["a", key], "parts": [0, 1]} for key in ("a", "_b", "if", 1)]
    + [{"type": "dict", "keys": ["a"], "parts": [0, 1]}, {"parts": [0, 1]}],
)
def test_an_impossible_structure_is_refused(named, tmp_path, returns):
    folder = shutil.copytree(named, tmp_path / "damaged")
    manifest = read_manifest(folder)
    write_manifest(folder, {**manifest, "returns": returns})
    with pytest.raises(RuntimeError, match="describes no network; deliver it again"):
        load(folder)


def test_buckets_take_names_and_show_open_axes(bucketed):
    with load(bucketed.path) as network:
        assert [str(spec) for spec in (*network.inputs, *network.outputs)] == [
            "x0 (float32 [rows, 5])",
            "y (float32 [rows, 7])",
        ]
        data = np.arange(15.0).reshape(3, 5)
        wanted = network(data)
        np.testing.assert_array_equal(network(x0=data), wanted)
        np.testing.assert_array_equal(network(**{"x.0": data.tolist()}), wanted)
        assert network.plan(x0=data) == "rows 3 is padded to 4"
        for given, said in (
            ({"x1": data}, r"there is no input 'x1'; the network takes x0 \(float32 \[rows, 5\]\)"),
            ({"x0": data * 0.1}, "x0 must hold float32, not float64"),
            ({}, "input x0 is missing"),
        ):
            with pytest.raises(ValueError, match=said):
                network(**given)


def test_names_that_are_no_identifiers_are_mapped():
    names = ["x", "a.b", "a/b", "a_b", "1", "class", "class_", "_y", "größe", "self", "²", ""]
    inputs = python_names(names, "input")
    assert inputs == [
        *("x", "a_b_2", "a_b_3", "a_b", "input_1", "class__2", "class_"),
        *("_y", "größe", "self", "_", "input_"),
    ]
    assert python_names(names, "output")[7] == "output_y"
    assert all(name.isidentifier() for name in python_names(names, "output"))
    assert c_names(["x", "int", "größe", "int_"]) == ["x", "int__2", "gr__e_", "int_"]
    assert c_names(["a.b", "1"]) == ["a_b_", "_1_"]


class Results(OrderedDict):
    """A mapping with fields, as the outputs of transformers are."""


@attrs.frozen
class Pair:
    """The parts of a network's output."""

    first: torch.Tensor
    second: torch.Tensor


Point = namedtuple("Point", "x y")  # noqa: PYI024 - as users write it
torch.utils._pytree.register_pytree_node(
    Results,
    lambda made: (list(made.values()), list(made)),
    lambda parts, keys: Results(zip(keys, parts, strict=True)),
    serialized_type_name="tests.Results",
)
torch.utils._pytree.register_pytree_node(
    Pair,
    lambda made: ([made.first, made.second], None),
    lambda parts, _: Pair(*parts),
    serialized_type_name="tests.Pair",
)


def _fields(name, **parts):
    return {"type": name, "keys": list(parts), "parts": list(parts.values())}


STRUCTURES = {
    "a tensor": (lambda x: x, "output0", 0),
    "a tuple of one": (lambda x: (x,), "output0", 0),
    "a tensor and None": (lambda x: (x, None), "output0", 0),
    "a tuple": (
        lambda x: (x, [x, 3], (x, x)),
        _fields(
            "Outputs",
            output0="output0",
            output1={"type": "list", "parts": ["output1.0"]},
            output2={"type": "tuple", "parts": ["output2.0", "output2.1"]},
        ),
        (0, [1], (2, 3)),
    ),
    "a list": (lambda x: [x, x], {"type": "list", "parts": ["output0", "output1"]}, [0, 1]),
    "a dict of one": (lambda x: {"logits": x}, _fields("dict", logits="logits"), {"logits": 0}),
    "a dict": (
        lambda x: {"b": x, "a": {1: x, "none": None}},
        _fields("dict", b="b", a={"type": "dict", "keys": [1], "parts": ["a.1"]}),
        {"b": 0, "a": {1: 1}},
    ),
    "a model's output": (
        lambda x: Results(logits=x, states=(x, x)),
        _fields(
            "Results",
            logits="logits",
            states={"type": "tuple", "parts": ["states.0", "states.1"]},
        ),
        (0, (1, 2)),
    ),
    "a named tuple": (lambda x: Point(x, x), _fields("Point", x="x", y="y"), (0, 1)),
    "an object": (lambda x: Pair(x, x), _fields("Pair", first="first", second="second"), (0, 1)),
}


@pytest.mark.parametrize("kind", STRUCTURES)
def test_the_structure_of_torch_is_known(kind):
    build, wanted, packed = STRUCTURES[kind]

    class Network(torch.nn.Module):
        def forward(self, x):
            return build(x + 1)

    program = torch.export.export(Network(), (torch.ones(3),))
    returned = returned_structure(program)
    assert returned == wanted
    tensor = {"shape": [3], "dtype": "float32"}
    count = len(output_names(returned))
    signature = {"inputs": [tensor], "outputs": [tensor] * count}
    manifest = json.loads(json.dumps(signature_with_names(signature, ["x"], returned)))
    result = Signature(manifest).packed(list(range(count)))
    assert result == packed
    if isinstance(wanted, dict) and wanted["type"][0].isupper():
        assert (type(result).__name__, list(result._fields)) == (wanted["type"], wanted["keys"])


PROGRAM = """
#include <stdio.h>
#include "net.h"

int main(int count, char **words) {
  const int64_t ids[8] = {0, 1, 2, 3, 4, 5, 6, 7};
  const float mask[8] = {1, 1, 0, 0, 1, 0, 0, 0};
  float logits[8];
  int64_t doubled[8];
  net_handle *handle = net_create(words[count - 1], 1);
  net_inputs inputs = {.mask = mask, .input_ids = ids};
  net_outputs outputs = {.class_ = doubled, .logits = logits};
  if (handle == NULL || net_run_named(handle, &inputs, &outputs) != 0) puts(net_error());
  for (int i = 0; i < 8; ++i) printf("%g/%d ", logits[i], (int)doubled[i]);
  inputs.mask = NULL;
  printf("%d %s\\n", net_run_named(handle, &inputs, &outputs), net_error());
  net_destroy(handle);
  return 0;
}
"""


@pytest.mark.full
def test_c_takes_inputs_by_name(named, tmp_path):
    bundle = tmp_path / "net"
    write_c_bundle(named, bundle, "net")
    (tmp_path / "use.c").write_text(PROGRAM)
    header = (bundle / "net.h").read_text()
    assert 'const int64_t *input_ids; /* int64 [2, 4], "input.ids" in the model */' in header
    warned = ("-Wall", "-Wextra", "-Werror", f"-I{bundle}", f"-Wl,-rpath,{bundle}")
    library = str(bundle / "libnet.so")
    for compiler, source, program in (
        (("cc", "-std=c99", "-pedantic"), tmp_path / "use.c", "use"),
        (("c++", "-std=c++17"), bundle / "main.cpp", "example"),
    ):
        words = (*compiler, *warned, str(source), library, "-o", str(tmp_path / program))
        completed(words, 0, cwd=tmp_path)
    weights = str(bundle / "weights.bin")
    ran = completed((str(tmp_path / "use"), weights), 0, cwd=tmp_path)
    wanted = " ".join(
        f"{ids * mask:g}/{2 * ids}" for ids, mask in zip(IDS.flat, MASK.flat, strict=True)
    )
    assert ran.stdout == f"{wanted} -1 mask is NULL\n"
    np.save(tmp_path / "i.npy", IDS)
    np.save(tmp_path / "m.npy", MASK)
    for words, said in (
        (("mask=m.npy", "input_ids=i.npy"), None),
        (("i.npy", "mask=m.npy"), None),
        (("i.npy",), "input mask is missing" + TAKES),
        (("i.npy", "masks=m.npy"), "there is no input masks" + TAKES),
        (("i.npy", "input_ids=i.npy"), "input input_ids is given twice" + TAKES),
        (("i.npy", "m.npy", "m.npy"), "there are too many inputs" + TAKES),
    ):
        command = (str(tmp_path / "example"), weights, *words)
        ran = completed(command, int(said is not None), cwd=tmp_path)
        if said is None:
            np.testing.assert_array_equal(np.load(tmp_path / "output0.npy"), IDS * MASK)
            (tmp_path / "output0.npy").unlink()
        else:
            assert re.search(said, ran.stderr)


NETWORK = """
import torch

class Named(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 8)

    def forward(self, x, mask):
        y = self.layer(x)
        return {"hidden": y, "pooled": (y * mask).sum(-1)}

def make():
    torch.manual_seed(0)
    return Named(), {"x": torch.randn(2, 4), "mask": torch.ones(2, 1)}

def batches():
    yield {"x": torch.randn(2, 4), "mask": torch.ones(2, 1)}
"""


@pytest.mark.full
@pytest.mark.usefixtures("forked_networks")
def test_a_delivered_network_returns_what_its_model_returns(delivery_into, tmp_path):
    (tmp_path / "net.py").write_text(NETWORK)
    options = TorchOptions(source=f"{tmp_path / 'net.py'}:make", compare=False)
    source = NetworkFrontend(network_of(options))
    assert source.deliver(delivery_into(source, tmp_path / "network")).failure is None
    x, mask = np.float32([[1, 2, 3, 4]] * 2), np.float32([[1], [0]])
    with load(tmp_path / "network") as network:
        outputs = network(x, mask=mask)
        assert (type(outputs), list(outputs)) == (dict, ["hidden", "pooled"])
        np.testing.assert_array_equal(network(mask=mask, x=x)["pooled"], outputs["pooled"])
    torchs = source.network.program.module()(x=torch.tensor(x), mask=torch.tensor(mask))
    for name, tensor in torchs.items():
        np.testing.assert_allclose(outputs[name], tensor.detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.full
@pytest.mark.usefixtures("forked_networks")
def test_names_of_an_onnx_file_are_kept_or_mapped(delivery_into, tmp_path):
    text = """(float[2, n] "input.1", float[2, n] in) => (float[2, n] out, float[2, n] sum) {
        out = Relu("input.1")
        sum = Add("input.1", in)
    }"""
    file = onnx_file(tmp_path / "net.onnx", text)
    (tmp_path / "data.py").write_text(DATA)
    length = Buckets(buckets=(4, 8), pad=0.0, name="length")
    shapes = {"input.1": (2, length), "in": (2, length)}
    source = make_frontend(OnnxOptions(source=str(file), shapes=shapes, compare=False))
    assert source.deliver(delivery_into(source, tmp_path / "network")).failure is None
    data = np.float32([[1, -2, 3]] * 2)
    with load(tmp_path / "network") as network:
        assert [str(spec) for spec in (*network.inputs, *network.outputs)] == [
            f"{name} (float32 [2, length])" for name in ("input_1", "in_", "out", "sum")
        ]
        outputs = network(input_1=data, **{"in": data})
        assert outputs._fields == ("out", "sum")
        np.testing.assert_array_equal(outputs.out, np.maximum(data, 0))
        np.testing.assert_array_equal(outputs.sum, 2 * data)
        np.testing.assert_array_equal(network(data, in_=data).sum, 2 * data)
    [[sample]] = [
        list(user_samples(own.network, f"{tmp_path / 'data.py'}:batches", "--inputs"))
        for own in list(source.by_bucket.values())[:1]
    ]
    np.testing.assert_array_equal(sample.inputs[1], np.full((2, 4), 2))


DATA = """
import numpy as np

def batches():
    yield {"in_": np.full((2, 4), 2, np.float32), "input.1": np.zeros((2, 4), np.float32)}
"""
