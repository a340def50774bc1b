"""Other programs in reduced precision: how they are opened, and what each is called."""

import importlib.util
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from chameleon_core._errors import ConfigError
from chameleon_networks._frameworks import AS_IT_COMES, PRECISIONS, inference, reduced_precision
from chameleon_networks._frameworks.inference import NetworkForms
from chameleon_networks._frameworks.precision import half_type, in_half
from chameleon_networks._frameworks.reduced_precision import (
    REDUCED_FRAMEWORKS,
    framework_named,
    missing_packages,
    select_frameworks,
)
from chameleon_networks._importers.options import BuiltinOptions
from chameleon_networks._importers.sources import BuiltinNetwork
from chameleon_system._processor import Processor
from chameleon_tvm._types import BFLOAT16, INT8

FORMS = NetworkForms(program=None, onnx=lambda: "net.onnx")


@pytest.fixture(scope="module")
def source():
    return BuiltinNetwork(BuiltinOptions(network="resnet_small"))


@pytest.fixture
def inputs(source):
    return source.samples(np.random.default_rng(0))


@pytest.fixture
def calibration(source):
    rng = np.random.default_rng(1)
    return [source.samples(rng) for _ in range(2)]


def _error(source, network, inputs):
    [expected] = source.framework(source.frameworks[0], 1)(inputs)
    [got] = network(inputs)
    return float(np.abs(got - expected).max() / np.abs(expected).max())


def test_names_say_the_precision():
    names = [entry.name for entry in REDUCED_FRAMEWORKS]
    assert len(set(names)) == len(names)
    for entry in REDUCED_FRAMEWORKS:
        assert entry.name == f"{entry.framework} {entry.precision.replace('-', ' ')}"
        assert framework_named(entry.name) is entry
        assert entry.precision in PRECISIONS


def test_a_network_of_onnx_is_run_by_what_reads_onnx():
    chosen = select_frameworks(FORMS, [AS_IT_COMES, INT8, INT8])
    assert [entry.name for entry in chosen] == [
        "openvino as it comes",
        "openvino int8",
        "onnxruntime int8",
    ]


def test_what_is_missing_is_named(source, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert missing_packages(source.forms, select_frameworks(source.forms, [INT8])) == {
        "openvino int8": "openvino and nncf are not installed",
        "onnxruntime int8": "onnxruntime and onnx and onnxscript are not installed",
        "torch.compile int8": "torch and torchao are not installed",
    }
    [_, onnx] = select_frameworks(FORMS, [INT8])
    assert onnx.needed(FORMS) == ("onnxruntime", "onnx"), "a file needs no exporter"


@pytest.mark.full
def test_openvino_as_it_comes_says_what_it_took(source, inputs):
    pytest.importorskip("openvino")
    [reduced] = [
        x for x in select_frameworks(source.forms, [AS_IT_COMES]) if x.framework == "openvino"
    ]
    network = reduced.opened(source.forms, [], threads=1)
    assert network.precision in {"float32", "bfloat16", "float16"}
    assert _error(source, network, inputs) < (1e-5 if network.precision == "float32" else 5e-2)


def test_openvino_says_what_it_computes_in_by_default(monkeypatch):
    asked = []

    def compiled(model, **options):
        asked.append(options["hint"])
        assert [node.get_type_name() for node in model.get_ops()] == ["Parameter", "Result"]
        return _Compiled("bf16")

    pytest.importorskip("openvino")
    monkeypatch.setattr(inference, "openvino_compiled", compiled)
    monkeypatch.setattr(inference, "openvino_default", inference.openvino_default.__wrapped__)
    assert reduced_precision.default_precision("openvino") == "bfloat16"
    assert reduced_precision.default_precision("torch") == "float32"
    assert asked == [None], "OpenVINO chooses"


@pytest.mark.full
@pytest.mark.parametrize("default", ["f32", "bf16"])
def test_openvino_converts_a_network_once_if_it_runs_it_in_another_dtype_too(
    source, inputs, tmp_path, monkeypatch, default
):
    pytest.importorskip("openvino")
    assert source.forms.openvino is None, "no other process has its program"
    monkeypatch.setattr(source, "programs", {"program": str(tmp_path / "program.pt2")})
    forms, file = source.forms, tmp_path / "openvino.xml"
    monkeypatch.setattr(inference, "openvino_default", lambda: default)
    [expected] = inference.openvino_network(forms, threads=1)(inputs)
    assert file.exists() == (default == "bf16")
    if default == "bf16":
        written = file.stat().st_mtime_ns
        read = NetworkForms(program=None, onnx=None, openvino=file)
        [got] = inference.openvino_network(read, threads=1)(inputs)
        np.testing.assert_array_equal(got, expected)
        assert file.stat().st_mtime_ns == written, "another process may use it"


@pytest.mark.full
def test_openvino_is_not_said_to_compute_in_what_it_does_not(tiny, monkeypatch):
    pytest.importorskip("openvino")
    monkeypatch.setattr(inference, "openvino_compiled", lambda *_, **__: _Compiled("f32"))
    with pytest.raises(ConfigError, match="asked for bfloat16 it computes in float32"):
        framework_named("openvino bfloat16").opened(tiny.forms, [], threads=1)


@pytest.mark.parametrize("network", [pytest.param("torch", marks=pytest.mark.full), "onnx"])
def test_onnxruntime_computes_in_int8(network, source, tiny):
    pytest.importorskip("onnxscript")
    chosen = source if network == "torch" else tiny
    rng = np.random.default_rng(1)
    calibration = [chosen.samples(rng) for _ in range(2)]
    quantized = framework_named("onnxruntime int8").opened(chosen.forms, calibration, threads=1)
    assert quantized.precision == INT8
    assert 1e-4 < _error(chosen, quantized, chosen.samples(rng)) < 0.5


def test_openvino_computes_in_int8(source, calibration, inputs):
    pytest.importorskip("openvino")
    pytest.importorskip("nncf", reason="NNCF quantizes for OpenVINO; it is not installed")
    network = framework_named("openvino int8").opened(source.forms, calibration, threads=1)
    assert network.precision.startswith(INT8)
    assert 1e-4 < _error(source, network, inputs) < 0.2


def test_torch_computes_in_int8(source, calibration, inputs, monkeypatch):
    pytest.importorskip("torchao", reason="torchao quantizes for torch; it is not installed")
    monkeypatch.setattr(inference, "compile_with_torch", lambda network: network)
    network = framework_named("torch.compile int8").opened(source.forms, calibration, threads=1)
    assert network.precision == INT8
    assert 1e-4 < _error(source, network, inputs) < 0.2


def test_a_program_is_made_one_of_half_precision(source, inputs, monkeypatch):
    assert half_type(in_half(source.program, BFLOAT16)) == BFLOAT16
    assert half_type(source.program) is None, "the program itself stays"
    calls = {}

    def eagerly(program, *, compiled, threads):
        calls.update(compiled=compiled, kind=half_type(program))
        return torch_network(program, compiled=False, threads=threads)

    torch_network = inference.torch_network
    monkeypatch.setattr(inference, "torch_network", eagerly)
    network = framework_named("torch.compile bfloat16").opened(source.forms, [], threads=1)
    assert calls == {"compiled": True, "kind": BFLOAT16}
    assert network.precision == BFLOAT16
    assert 1e-4 < _error(source, network, inputs) < 5e-2


class _Compiled:
    """An OpenVINO model that was compiled in some precision.

    Args:
        kind: OpenVINO's name of it.
    """

    outputs = ()

    def __init__(self, kind):
        self._kind = kind

    def get_property(self, _):
        return SimpleNamespace(get_type_name=lambda: self._kind)

    def create_infer_request(self):
        return SimpleNamespace(infer=lambda _: {})


def _node(kind, *targets):
    readers = [SimpleNamespace(get_node=lambda target=target: target) for target in targets]
    output = SimpleNamespace(get_target_inputs=lambda: readers)
    return SimpleNamespace(get_type_name=lambda: kind, output=lambda _: output)


@pytest.fixture
def nncf(monkeypatch):
    """A stand-in for NNCF and for OpenVINO's compiler, and what they were given."""
    calls = {}
    module = ModuleType("nncf")

    def quantize(model, dataset, **more):
        items, transform = dataset
        calls.update(more, model=model, items=[transform(item) for item in items])
        return "int8 model"

    def compiled(model, *, threads, hint):
        calls.update(compiled=model, threads=threads, hint=hint)
        return _Compiled(calls["kind"])

    module.quantize = quantize
    module.Dataset = lambda items, transform: (items, transform)
    fixes = SimpleNamespace(FIRST_LAYER="first layer", DISABLE="none")
    module.OverflowFix = fixes
    module.ModelType = SimpleNamespace(TRANSFORMER="transformer")
    module.AdvancedQuantizationParameters = dict
    monkeypatch.setitem(sys.modules, "nncf", module)
    monkeypatch.setattr(inference, "openvino_compiled", compiled)
    calls["kind"] = "f32"
    return calls


def _openvino_model(*nodes):
    names = [SimpleNamespace(get_any_name=lambda name=name: name) for name in ("ids", "mask")]
    return SimpleNamespace(inputs=names, get_ops=lambda: nodes)


@pytest.mark.parametrize("saturate", [False, True])
@pytest.mark.parametrize("kind", ["f32", "bf16"])
def test_nncf_gets_the_same_inputs_and_what_its_documentation_advises(
    nncf, monkeypatch, kind, *, saturate
):
    nncf["kind"] = kind
    product = _node("MatMul")
    model = _openvino_model(_node("Softmax", product), product)
    monkeypatch.setattr(inference, "openvino_model", lambda *_: model)
    monkeypatch.setattr(reduced_precision, "sums_saturate", lambda: saturate)
    calibration = [[np.full(2, number), np.full(3, number)] for number in range(4)]
    network = framework_named("openvino int8").opened(FORMS, calibration, threads=3)
    assert [item["mask"].tolist() for item in nncf["items"]] == [[n] * 3 for n in range(4)]
    assert list(nncf["items"][0]) == ["ids", "mask"]
    assert nncf["subset_size"] == len(calibration)
    assert nncf["model_type"] == "transformer"
    fix = "first layer" if saturate else "none"
    assert nncf["advanced_parameters"] == {"overflow_fix": fix}
    assert (nncf["compiled"], nncf["threads"], nncf["hint"]) == ("int8 model", 3, None)
    assert network.precision == ("int8" if kind == "f32" else "int8, the rest bfloat16")


def test_a_softmax_of_classes_is_no_attention(nncf, monkeypatch):
    model = _openvino_model(_node("MatMul"), _node("Softmax", _node("Result")))
    monkeypatch.setattr(inference, "openvino_model", lambda *_: model)
    framework_named("openvino int8").opened(FORMS, [[np.zeros(2), np.zeros(3)]], threads=1)
    assert nncf["model_type"] is None


@pytest.mark.parametrize("saturate", [False, True])
def test_torchao_observes_the_same_inputs(source, calibration, inputs, monkeypatch, *, saturate):
    observed = []
    config = {}

    def prepare(module, quantizer):
        config["quantizer"] = quantizer

        def run(image):
            observed.append(image.numpy())
            return module(image)

        return run

    quantizer = SimpleNamespace(set_global=config.update)
    fakes = {
        "": {},
        ".quantize_pt2e": {"prepare_pt2e": prepare, "convert_pt2e": lambda module: module},
        ".quantizer.x86_inductor_quantizer": {
            "X86InductorQuantizer": lambda: quantizer,
            "get_default_x86_inductor_quantization_config": lambda **more: more,
        },
    }
    for name, values in fakes.items():
        module = ModuleType(name)
        vars(module).update(values)
        monkeypatch.setitem(sys.modules, f"torchao.quantization.pt2e{name}", module)
    monkeypatch.setattr(reduced_precision, "sums_saturate", lambda: saturate)
    monkeypatch.setattr(inference, "compile_with_torch", lambda network: network)
    network = framework_named("torch.compile int8").opened(source.forms, calibration, threads=1)
    assert config == {"reduce_range": saturate, "quantizer": quantizer}
    assert [array.tolist() for array in observed] == [array.tolist() for [array] in calibration]
    assert _error(source, network, inputs) < 1e-5, "the stand-in quantizes nothing"


@pytest.mark.parametrize(
    ("architecture", "flags", "expected"),
    [
        ("x86_64", {"avx2"}, True),
        ("x86_64", {"avx2", "avx512f"}, True),
        ("x86_64", {"avx2", "avx_vnni"}, False),
        ("x86_64", {"avx512f", "avx512_vnni"}, False),
        ("aarch64", {"asimd"}, False),
    ],
)
def test_sums_of_eight_bits_saturate_on_x86_before_vnni(
    monkeypatch, architecture, flags, *, expected
):
    processor = Processor(architecture=architecture, flags=frozenset(flags))
    monkeypatch.setattr(reduced_precision, "this_processor", lambda: processor)
    assert reduced_precision.sums_saturate() is expected
