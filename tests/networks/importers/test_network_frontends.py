"""Networks become weighted tasks; what cannot be read ends in a sentence."""

import importlib
import logging
import re
import textwrap
from unittest.mock import Mock

import numpy as np
import onnx
import pytest
import structlog
import torch
from chameleon_core._errors import ConfigError
from chameleon_core._pipeline.load import from_dict
from chameleon_core._task import Task
from chameleon_networks._frameworks.inference import torch_inference
from chameleon_networks._frontends.bucketed import make_frontend
from chameleon_networks._importers import sources
from chameleon_networks._importers.options import (
    NETWORKS,
    BuiltinOptions,
    OnnxOptions,
    TorchOptions,
)
from chameleon_networks._importers.torch import programs as torch_programs
from chameleon_tvm._sources import named_object
from chameleon_tvm.api import Conv2dSpec
from marks import full

from ..onnx_files import onnx_file  # noqa: TID252 - shared by folders

NET = """
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem = nn.Conv2d(8, 8, 1)
            self.first = nn.Conv2d(8, 8, 3, padding=1)
            self.second = nn.Conv2d(8, 8, 3, padding=1)
            self.third = nn.Conv2d(8, 8, 3, padding=1)
            self.last = nn.Linear(8, 5)

        def forward(self, x):
            x = torch.relu(self.first(self.stem(x)))
            x = self.third(torch.relu(self.second(x)))
            return self.last(x.mean((2, 3)))

    def net():
        return Net(), (torch.zeros(2, 8, 10, 12),)

    def no_pair():
        return Net()

    def no_module():
        return 3, 4

    def raises():
        raise RuntimeError("no weights today")

    def leaves():
        raise SystemExit(3)

    class Dynamic(nn.Module):
        def forward(self, x):
            return x[x > 0] if x.sum() > 0 else x

    def dynamic():
        return Dynamic(), (torch.ones(4),)

    class Checked(nn.Module):
        def __init__(self, factor=2):
            super().__init__()
            self.factor = factor

        def forward(self, x):
            if torch.tensor([1.0]).sum() > 0 and (x < 0).any():
                raise ValueError("negative")
            assert torch.isfinite(x).all()
            if torch.allclose(x, x + 1):
                raise ValueError("it is large")
            return (x * self.factor).reshape(-1, self.factor)

    def checked():
        return Checked(), (torch.ones(4),)

    class Writes(nn.Module):
        def forward(self, x, y):
            x[:, 0] = y.flip(0)
            return x * y, torch.complex(y, y).conj().imag

    def writing():
        return Writes(), (torch.ones(2, 2), torch.complex(*torch.ones(2, 2)).conj().imag)

    class Fails(Checked):
        def forward(self, x):
            return super().forward(x) if x.sum() > 0 else x

    def failing():
        return Fails(3), (torch.ones(4),)

    class Dull(nn.Module):
        def forward(self, x):
            return x + 1

    def dull():
        return Dull(), (torch.ones(4),)

    def with_nan():
        network = Net()
        with torch.no_grad():
            network.second.weight[0, 0, 0, 0] = float("nan")
        return network, (torch.zeros(2, 8, 10, 12),)

    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Net()

        def forward(self, x):
            return torch.mode(self.inner(x))[0]

    def odd():
        return Odd(), (torch.zeros(2, 8, 10, 12),)

    def double():
        return Net().double(), (torch.zeros(2, 8, 10, 12).double(),)

    class Drawing(nn.Module):
        def forward(self, x):
            return nn.functional.dropout(x, training=True) + torch.randn_like(x)

    def drawing():
        return nn.Sequential(Drawing()), (torch.ones(4),)

    def random():
        return nn.Linear(3, 5), (torch.zeros(1, 3),)
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "net.py"
    path.write_text(textwrap.dedent(NET), encoding="utf-8")
    return path


def _torch_tasks(source, layout="NHWC"):
    return make_frontend(TorchOptions(source=str(source), layout=layout)).tasks("llvm")


def _summary(tasks):
    return [(task.operator, task.weight) for task in tasks]


def test_equal_operators_are_one_task_with_a_weight(file):
    tasks = _torch_tasks(f"{file}:net")
    assert _summary(tasks) == [("conv2d", 1), ("conv2d", 2), ("conv2d", 1), ("dense", 1)]
    assert [task.name for task in tasks] == [
        "stem 8x8 1x1 @2x10x12",
        "first 8x8 3x3 @2x10x12",
        "third 8x8 3x3 @2x10x12",
        "last 8x5 @2",
    ]
    assert [task.arguments.get("activation") for task in tasks] == [None, "relu", None, None]
    assert all(task.arguments["bias"] for task in tasks)
    stem, spec = Conv2dSpec.of(tasks[0]), Conv2dSpec.of(tasks[1])
    assert (stem.layout, stem.output_layout) == ("NCHW", "NHWC"), "it reads images as they come"
    assert (spec.input, spec.filters, spec.kernel_size) == ((2, 8, 10, 12), 8, (3, 3))
    assert (spec.pads, spec.layout) == ((1, 1, 1, 1), "NHWC")
    assert tasks[3].arguments["input"] == (2, 8)
    assert tasks[3].arguments["units"] == 5


def test_the_layout_is_the_users(file):
    assert Conv2dSpec.of(_torch_tasks(f"{file}:net", "NCHW")[0]).layout == "NCHW"


def test_tasks_know_the_bytes_of_all_weights_of_the_network(file):
    tasks = _torch_tasks(f"{file}:net")
    network, _ = named_object(f"{file}:net", "test")()
    weights = sum(parameter.nbytes for parameter in network.parameters())
    assert {task.cold_bytes for task in tasks} == {weights}
    assert Task(**tasks[0].to_json()) == tasks[0]


def test_a_saved_program_gives_the_same_tasks(file, tmp_path):

    network, inputs = named_object(f"{file}:net", "test")()
    saved = tmp_path / "net.pt2"
    torch.export.save(torch.export.export(network.eval(), inputs), saved)
    assert _torch_tasks(saved) == _torch_tasks(f"{file}:net")


@pytest.mark.parametrize(
    ("function", "words"),
    [
        ("no_pair", "returned a Net instead of a pair"),
        ("no_module", "returned an int instead of a torch module"),
        ("raises", "failed: RuntimeError: no weights today"),
        ("leaves", "failed: SystemExit: 3"),
        ("dynamic", "torch cannot export"),
        ("failing", "torch cannot export"),
        ("drawing", r"operator randn_like in module 0 .* draws random numbers"),
        ("absent", "has no 'absent'"),
    ],
)
def test_what_torch_cannot_give(file, function, words):
    with pytest.raises(ConfigError, match=words) as caught:
        _torch_tasks(f"{file}:{function}")
    assert caught.value.hint


@pytest.mark.parametrize("kind", ["int64", "uint64", "bool"])
def test_samples_of_integers_lie_in_the_limits_of_their_dtype(kind):
    example = np.array([0, 1] if kind == "bool" else [np.iinfo(kind).max, np.iinfo(kind).min], kind)
    sample = sources._random_like(torch_programs.NumberRange.of(example), np.random.default_rng(0))
    assert (sample.shape, sample.dtype) == (example.shape, example.dtype)


@pytest.mark.parametrize("hidden", [-np.inf, True])
def test_samples_of_masks_hide_no_more_than_the_example(hidden):
    example = np.zeros((3, 4), np.asarray(hidden).dtype)
    example[0, 1:] = example[1, 2:] = hidden
    numbers = torch_programs.NumberRange.of(example)
    rng = np.random.default_rng(0)
    samples = [sources._random_like(numbers, rng) for _ in range(8)]
    assert all(sorted(sample.tolist()) == sorted(example.tolist()) for sample in samples)
    assert len({sample.tobytes() for sample in samples}) > 1, "their rows are in other orders"
    assert {sample.dtype for sample in samples} == {example.dtype}


def test_checks_of_values_are_left_out(file):
    with structlog.testing.capture_logs() as logs:
        program = torch_programs.export_source(f"{file}:checked").program
    assert [entry["checks"] for entry in logs if entry["event"] == "checks_left_out"] == [3]
    x = torch.tensor([0.0, 1.0, 2.0, 3.0])
    assert program.module()(x).tolist() == [[0.0, 2.0], [4.0, 6.0]]


def test_changes_of_inputs_are_left_out_and_tensors_may_be_negated_views(file):
    with structlog.testing.capture_logs() as logs:
        program = torch_programs.export_source(f"{file}:writing").in_shapes({})
    assert [log["inputs"] for log in logs if log["event"] == "changes_of_inputs_left_out"] == ["x"]
    numbers = torch_programs.ProgramInputs.of(program).ranges
    assert (numbers["y"].least, numbers["y"].most) == (-1, -1)
    inputs = [np.zeros((2, 2), np.float32), np.array([2, 3], np.float32)]
    _, negated = torch_inference(program.module(), program)(inputs)
    assert negated.tolist() == [-2, -3]


@pytest.mark.parametrize(
    ("function", "words", "hint"),
    [
        ("with_nan", "weights of first 8x8 3x3 @2x10x12, a conv2d that gives", "Fix the weights"),
        ("double", "module stem .* is in float64, in which", "weights are torch.float64; return"),
        ("odd", r"mode \(net.py:\d+: `return torch.mode", "Write that part"),
    ],
)
def test_what_tvm_cannot_do(file, function, words, hint):
    with pytest.raises(ConfigError, match=words) as caught:
        _torch_tasks(f"{file}:{function}")
    assert re.search(hint, caught.value.hint or "")


def test_a_network_of_other_operators_has_no_tasks(file):
    assert _torch_tasks(f"{file}:dull") == []


def test_random_weights_are_the_same_each_time(file):
    programs = [torch_programs.export_source(f"{file}:random").program for _ in range(2)]
    weights = [program.state_dict["weight"].detach().numpy() for program in programs]
    np.testing.assert_array_equal(*weights)


LOADED = """
import sys
from chameleon_networks._importers.torch.programs import load_saved
print(load_saved(sys.argv[1]).program)
"""


@pytest.mark.full
def test_a_saved_program_may_have_operators_of_transformers(tmp_path, run_python):
    pytest.importorskip("transformers.integrations.moe")
    experts, file = torch.ops.transformers.grouped_mm_fallback, f"{tmp_path}/net.pt2"
    network = torch.fx.symbolic_trace(lambda x, weights, ends: experts(x, weights, ends) * 2.0)
    inputs = torch.ones(2, 3), torch.ones(1, 3, 4), torch.tensor([2], dtype=torch.int32)
    torch.export.save(torch.export.export(network, inputs), file)
    assert "grouped_mm_fallback" in run_python(LOADED, file)


def _module(name):
    if name.startswith("transformers"):
        raise RuntimeError("an import of transformers fails")
    return importlib.import_module(name)


@pytest.mark.parametrize("problem", ["no transformers::grouped_mm", "the file is cut off"])
def test_the_first_error_of_a_saved_program_is_told(monkeypatch, tmp_path, problem):
    def failed(_file):
        logging.getLogger("torch.export").warning("an error", exc_info=KeyError(problem))
        raise RuntimeError("an error, see the log")

    load = Mock(side_effect=failed)
    imported = Mock(side_effect=_module)
    monkeypatch.setattr(torch.export, "load", load)
    monkeypatch.setattr(torch_programs, "importlib", Mock(import_module=imported))
    with pytest.raises(ConfigError, match="an error, see the log"):
        torch_programs.load_saved(f"{tmp_path}/net.pt2")
    load.assert_called_once()
    names = [call.args[0].partition(".")[0] for call in imported.call_args_list]
    assert ("transformers" in names) == ("transformers" in problem)


def test_a_file_that_is_no_saved_program(tmp_path):
    broken = tmp_path / "broken.pt2"
    broken.write_bytes(b"not a program")
    with pytest.raises(ConfigError, match="no program saved by torch"):
        _torch_tasks(broken)


@pytest.mark.parametrize(
    ("network", "expected"),
    [
        full("resnet_small", [*[("conv2d", 1)] * 6, ("dense", 1)]),
        ("bert_small", [("dense", 2), ("attention", 2), *[("dense", 2)] * 3]),
    ],
)
def test_built_in_networks(network, expected):
    assert _summary(make_frontend(BuiltinOptions(network=network)).tasks("llvm")) == expected


@pytest.mark.parametrize("network", [name for name in NETWORKS if "small" in name])
def test_small_networks_answer(network):
    weights = importlib.import_module("chameleon_networks._importers.torch.inference")

    record = NETWORKS[network]
    nets = [weights.initialise(named_object(record.factory, "test")(), seed) for seed in (0, 0, 1)]
    shape = (2, *record.inputs)
    generator = torch.Generator().manual_seed(0)
    if record.kind == "tokens":
        example = torch.randint(record.vocabulary, shape, generator=generator)
    else:
        example = torch.randn(shape, generator=generator)
    with torch.no_grad():
        first, again, other = [net(example) for net in nets]
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.isfinite(first).all()
    assert 1e-2 < float(first.std()) < 1e2


def _onnx_file(folder, last="Identity"):
    """A convolution, and after it an operator of one input."""
    text = f"""(float[n, 3, 8, 8] x) => (float[n, 4, 8, 8] y) {{
        c = Conv <pads = [1, 1, 1, 1]> (x, w)
        [the_{last}] y = {last}(c)
    }}"""
    return onnx_file(folder / "net.onnx", text, w=np.ones((4, 3, 3, 3), np.float32))


def test_an_onnx_file(tmp_path):
    path = _onnx_file(tmp_path)
    with pytest.raises(ConfigError, match=r"input 'x' is open: \[n, 3, 8, 8\]"):
        make_frontend(OnnxOptions(source=str(path))).tasks("llvm")
    options = OnnxOptions(source=str(path), shapes={"x": (2, 3, 8, 8)})
    [task] = make_frontend(options).tasks("llvm")
    assert Conv2dSpec.of(task).input == (2, 3, 8, 8)
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(ConfigError, match="no valid ONNX file"):
        make_frontend(options).tasks("llvm")
    with pytest.raises(ConfigError, match="there is no file"):
        make_frontend(OnnxOptions(source=str(tmp_path / "absent.onnx"))).tasks("llvm")


def test_outputs_of_an_onnx_file_may_lack_shapes(tmp_path):
    path = _onnx_file(tmp_path)
    model = onnx.load(path)
    model.graph.output[0].type.tensor_type.ClearField("shape")
    onnx.save(model, path)
    options = OnnxOptions(source=str(path), shapes={"x": (2, 3, 8, 8)})
    assert [task.name for task in make_frontend(options).tasks("llvm")]
    assert not onnx.load(path).graph.output[0].type.tensor_type.HasField("shape")


def test_a_cycle_of_an_onnx_file_names_its_nodes(tmp_path):
    path = onnx_file(
        tmp_path / "net.onnx",
        "(float[3] x) => (float[3] y) { [first] a = Add (x, b) [second] b = Relu (a) y = Abs (b) }",
    )
    with pytest.raises(ConfigError, match=r"its nodes form a cycle: .*(first|second) -> "):
        make_frontend(OnnxOptions(source=str(path))).tasks("llvm")


def test_samples_of_an_onnx_file_are_indices_masks_and_divisors(tmp_path, monkeypatch):
    text = """(int64[1, 40] ids, int64[1, 40] kinds, int32[40] short, int64[1, 40] mask,
         bool[40] kept, int64[40] any, int32[40] parts, uint8[1, 40] counts,
         int32[40] rates, uint8 letter, float[40] x) => (float[1, 40] y) {
        long = Cast <to = 7> (short)
        count = Cast <to = 1> (counts)
        sign = Cast <to = 6> (letter)
        a5 = Gather (letters, sign)
        a0 = Gather (few, ids)
        a1 = Gather (words, ids)
        a2 = Gather (x, any)
        a3 = Gather (few, long)
        a4 = Div (a3, count)
        a = Sum (a0, a1, a2, a4, a5)
        b = Gather <axis = 1> (rows, kinds)
        c = Reshape (b, flat)
        m = Cast <to = 1> (mask)
        k = Where (kept, a, m)
        r = Mod (short, parts)
        s = Cast <to = 1> (r)
        rate = Cast <to = 1> (rates)
        t = Reciprocal (rate)
        z = Sum (k, c, s, t)
        y = Div (z, x)
    }"""
    tables = {"words": 9, "few": 7, "rows": (1, 3), "letters": 300}
    arrays = {name: np.ones(shape, np.float32) for name, shape in tables.items()}
    arrays["flat"] = np.array([1, 40])
    path = onnx_file(tmp_path / "net.onnx", text, **arrays)
    network = sources.OnnxNetwork(OnnxOptions(source=str(path)))
    _ = network.imported
    parse = Mock(wraps=onnx.load)
    monkeypatch.setattr(onnx, "load", parse)
    *whole, letter, real = network.samples(np.random.default_rng(0))
    assert [{*np.unique(numbers)} for numbers in whole] == [
        {*range(7)},
        {0, 1, 2},
        {*range(7)},
        {0, 1},
        {0, 1},
        {0},
        {1, 2},
        {1, 2},
        {1, 2},
    ]
    kinds = [numbers.dtype.name for numbers in whole]
    assert kinds == ["int64", "int64", "int32", "int64", "bool", "int64", "int32", "uint8", "int32"]
    assert letter in range(2, 256), "the table has more places than its dtype names"
    assert isinstance(letter, np.ndarray)
    assert real.min() < 0 < real.max()
    assert network.frameworks
    assert parse.call_count == 1, "the file is parsed once for all that is asked of it"


def test_nodes_of_an_onnx_file_may_precede_what_they_read(tmp_path):
    text = """(float[2, 3, 8, 8] x) => (float[2, 4, 8, 8] y) {
        y = If <then_branch = t () => (float[2, 4, 8, 8] p) { p = Neg(o) o = Sin(r) },
                else_branch = e () => (float[2, 4, 8, 8] q) { q = Exp(r) }> (k)
        r = Relu(c)
        c = Conv <pads = [1, 1, 1, 1]> (x, w)
    }"""
    weights = {"w": np.ones((4, 3, 3, 3), np.float32), "k": np.asarray(True)}
    path = onnx_file(tmp_path / "net.onnx", text, **weights)
    [task] = make_frontend(OnnxOptions(source=str(path))).tasks("llvm")
    assert Conv2dSpec.of(task).input == (2, 3, 8, 8)


@pytest.mark.parametrize(
    ("more", "shapes", "words", "hint"),
    [
        (
            ["RandomUniformLike"],
            {"x": (1, 3, 8, 8)},
            r"node 'the_RandomUniformLike' \(RandomUniformLike\) cannot be compiled: the",
            "Write that",
        ),
        ([], {"z": (1, 3, 8, 8)}, "no input 'z'", r"inputs are x: \['n', 3, 8, 8\]"),
        ([], {"x": (1, 3, 8)}, r"'x' of .* is \['n', 3, 8, 8\], which \[1, 3, 8\]", "open"),
        ([], {"x": (1, 4, 8, 8)}, "does not fit", "open"),
    ],
)
def test_what_an_onnx_file_does_not_fit(more, shapes, words, hint, tmp_path):
    path = _onnx_file(tmp_path, *more)
    with pytest.raises(ConfigError, match=words) as caught:
        make_frontend(OnnxOptions(source=str(path), shapes=shapes)).tasks("llvm")
    assert re.search(hint, caught.value.hint or "")


def test_a_pipeline_names_a_network_in_a_word(tmp_path):
    pipeline = from_dict({"model": {"builtin": "resnet18"}, "output": str(tmp_path / "run")})
    assert pipeline.model.options.network == "resnet18"
    assert pipeline.model.options.layout == "auto"
