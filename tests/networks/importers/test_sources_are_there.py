"""What a network is read from is looked for without reading it."""

import importlib.util

import attrs
import pytest
from chameleon_core._errors import ConfigError
from chameleon_core._pipeline.load import load_pipeline
from chameleon_core._pipeline.yaml import dump_yaml
from chameleon_core._plugins.factory import load_factory
from chameleon_networks import hooks
from chameleon_networks._frontends.lazy import LazyFrontend
from chameleon_networks._importers.onnx.models import onnx_models
from chameleon_networks._importers.options import BuiltinOptions, OnnxOptions, TorchOptions
from chameleon_networks._importers.source_checks import import_library, torch_models
from chameleon_networks._precision.section import Precision
from chameleon_networks._shapes import Buckets

UNREAD = """
def make():
    raise AssertionError("it is not called")

number = 3
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "net.py").write_text(UNREAD)
    (tmp_path / "net.onnx").write_text("no ONNX")
    (tmp_path / "net.pt2").write_text("no program")
    return tmp_path


def frontend(folder, name, **options):
    if name.endswith(".onnx"):
        return LazyFrontend(OnnxOptions(source=str(folder / name), **options))
    return LazyFrontend(TorchOptions(source=str(folder / name), **options))


@pytest.mark.parametrize("name", ["net.py:make", "net.onnx", "net.pt2"])
def test_what_is_there_is_not_read(folder, name):
    frontend(folder, name).check_source()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("absent.onnx", "there is no file"),
        ("absent.pt2", "there is no file"),
        ("absent.py:make", "there is no file"),
        ("net.py:mak", "has no 'mak'"),
        ("net.py:number", "is an int and no function"),
    ],
)
def test_what_is_not_there_is_an_error_with_a_hint(folder, name, said):
    with pytest.raises(ConfigError, match=said) as caught:
        frontend(folder, name).check_source()
    assert caught.value.hint


def test_a_network_for_several_shapes_is_looked_for_once(folder):
    shapes = {"x": (Buckets(buckets=(1, 8)), 3)}
    with pytest.raises(ConfigError, match="there is no file"):
        frontend(folder, "absent.onnx", shapes=shapes).check_source()


def test_what_calibrates_it_is_looked_for_too(folder):
    network = frontend(folder, "net.onnx")
    network.compute_in(Precision(type="int8", max_error=0.1, calibrate=f"{folder}/net.py:batches"))
    with pytest.raises(ConfigError, match=r"calibrate: .* has no 'batches'"):
        network.check_source()


def test_a_library_that_is_not_installed_is_named(folder, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ConfigError, match="onnx is not installed"):
        frontend(folder, "net.onnx").check_source()
    for network in (
        frontend(folder, "net.pt2"),
        LazyFrontend(BuiltinOptions(network="resnet18")),
    ):
        with pytest.raises(ConfigError, match="torch is not installed"):
            network.check_source()


@pytest.mark.parametrize("cause", ["import absent_dependency", "raise OSError('no libgomp')"])
def test_a_library_whose_import_fails_is_named_with_the_cause(cause, tmp_path, monkeypatch):
    (tmp_path / "library_with_a_fault.py").write_text(cause)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match=r"cannot be imported: .*(absent_dependency|no libgomp)"):
        import_library("library_with_a_fault")
    with pytest.raises(ConfigError, match="absent_library is not installed"):
        import_library("absent_library")


MODELS = """
import torch.nn as nn

def network(classes=10):
    if classes > 10:
        return nn.Linear(1, classes), None
    return nn.Linear(1, 10), (object(),)

def with_an_argument(width):
    return nn.Linear(width, 1), ()

def with_a_keyword(*, width):
    return nn.Linear(width, 1), ()

def module():
    return nn.Linear(1, 1)

async def later():
    return nn.Linear(1, 1), ()
"""


@pytest.mark.parametrize(
    ("name", "text", "models"),
    [
        ("net.py", MODELS, ["net.py:network"]),
        ("net.py", "def network():\n    return 1, 2\n", []),
        ("net.py", "import torch\ndef (", []),
        ("net.py", "import torch\0", []),
        ("net.pt2", "", ["net.pt2"]),
        ("net.onnx", "", ["net.onnx"]),
        ("net.txt", "", []),
    ],
)
def test_models_are_found_in_files_that_are_not_run(tmp_path, name, text, models):
    (tmp_path / name).write_text(text)
    candidates = [*onnx_models(tmp_path, name), *torch_models(tmp_path, name)]
    assert [model.name for model in candidates] == models
    for model in candidates:
        (tmp_path / "p.yaml").write_text(dump_yaml({**model.pipeline, "target": "native"}))
        assert load_pipeline(tmp_path / "p.yaml").model.options.source == str(tmp_path / model.name)


def test_open_axes_of_an_offered_model_get_extents(tmp_path):
    onnx = pytest.importorskip("onnx")
    shapes = {
        "ids": ["batch", "length"],
        "mask": ["batch", 1, 1, "length"],
        "image": ["", 3, "", ""],
        "fixed": [2],
    }
    kind = onnx.TensorProto.FLOAT
    inputs = [
        onnx.helper.make_tensor_value_info(name, kind, [extent or None for extent in shape])
        for name, shape in shapes.items()
    ]
    graph = onnx.helper.make_graph([], "open", inputs, inputs[:1])
    onnx.save(onnx.helper.make_model(graph), tmp_path / "open.onnx")
    [model] = onnx_models(tmp_path, "open.onnx")
    assert model.pipeline["model"]["onnx"]["shapes"] == {
        "ids": [1, 128],
        "mask": [1, 1, 1, 128],
        "image": [1, 3, 224, 224],
    }
    assert "buckets" in model.reasons["model"]


@pytest.mark.full
def test_open_axes_of_a_saved_program_get_its_example_s_extents(tmp_path):
    torch = pytest.importorskip("torch")
    batch, length = torch.export.Dim("batch"), torch.export.Dim("length")
    program = torch.export.export(
        torch.nn.Bilinear(4, 3, 2),
        (torch.ones(5, 7, 4), torch.ones(5, 7, 3)),
        dynamic_shapes=({0: batch, 1: length}, {0: batch, 1: length}),
    )
    torch.export.save(program, tmp_path / "open.pt2")
    [model] = torch_models(tmp_path, "open.pt2")
    source = {"source": "open.pt2", "shapes": {"input1": [5, 7, 4], "input2": [5, 7, 3]}}
    assert model.pipeline["model"] == {"torch": source}
    assert "buckets" in model.reasons["model"]


def test_frontends_with_files_name_what_detects_models():
    for frontend in hooks.FRONTENDS:
        has_files = "source" in {field.name for field in attrs.fields(frontend.options)}
        assert bool(frontend.detect) == has_files
        assert not has_files or callable(load_factory(frontend.detect))
