"""`chameleon schema`: whatever it refuses, `chameleon validate` refuses, and every wrong key."""

import copy
import json
import re

import pytest
from chameleon_cli._json_schema.document import pipeline_schema
from chameleon_cli._main import run
from chameleon_core._errors import ExitCode
from chameleon_core._pipeline.load import from_dict, load_pipeline
from chameleon_core._pipeline.nodes import PipelineError
from chameleon_core.api import Registry
from chameleon_core.plugin_api import NoOptions, PluginRecord
from jsonschema import Draft202012Validator
from ruamel.yaml import YAML
from synthetic import plugin_of

MINIMAL = {"model": {"operators": [{"dense": {"input": [4, 8], "units": 16}}]}, "target": "native"}
EVERYTHING = {
    **MINIMAL,
    "preset": "paper",
    "precision": {"search": ["int8"], "max_error": 0.01},
    "transform": {"data": "digits", "scores": ["fisher"]},
    "explorer": {"name": "portfolio", "explorers": ["annealing", {"name": "ppo", "steps": 4}]},
    "records": ["none.sqlite", {"name": "files", "location": "there.sqlite"}],
    "baselines": ["onednn", {"name": "untuned"}],
    "budget": {"measurements": 8, "wall_time": "20m", "tasks_at_once": "auto"},
    "require": {"min_ratio": 0.9, "against": "onednn"},
    "seed": 1,
    "output": "runs/x",
}


@pytest.fixture(scope="module")
def schema():
    return pipeline_schema()


@pytest.fixture(scope="module")
def check(schema):
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def keys_of(value, path=()):
    """The paths of all keys in a document."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield (*path, key)
            yield from keys_of(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from keys_of(inner, (*path, index))


def misspelt(document, path):
    changed = copy.deepcopy(document)
    inside = changed
    for step in path[:-1]:
        inside = inside[step]
    inside[f"{path[-1]}_"] = inside.pop(path[-1])
    return changed


def refused(document):
    try:
        from_dict(document)
    except PipelineError:
        return True
    return False


def expanded(document):
    return json.loads(json.dumps(dict(from_dict(document).document)))


def examples(root):
    return sorted((root / "examples").glob("*.yaml"))


def test_every_example_fits_as_written_and_with_every_default(root, check):
    for file in examples(root):
        assert not list(check.iter_errors(YAML(typ="safe").load(file))), file
        document = json.loads(json.dumps(dict(load_pipeline(file).document)))
        assert not list(check.iter_errors(document)), file


FENCE = re.compile(r"^ *```yaml\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
KEY = re.compile(r"^(?=[a-z_]+:)", re.MULTILINE)


def test_pipelines_and_parts_of_them_in_the_pages_fit(files, schema):
    """Blocks whose keys are a pipeline's; some show one key in several ways, so each by itself."""
    check = Draft202012Validator({**schema, "required": []})
    seen = 0
    for file in files:
        for text in FENCE.findall(file.read_text()) if file.suffix == ".md" else ():
            parts = [YAML(typ="safe").load(part) for part in KEY.split(text)]
            shown = [part for part in parts if isinstance(part, dict)]
            if {key for part in shown for key in part} <= set(schema["properties"]):
                for part in shown:
                    assert not [error.message for error in check.iter_errors(part)], (file, part)
                    seen += 1
    assert seen > 20


def test_operators_of_other_distributions_are_in_it(root, monkeypatch):
    monkeypatch.syspath_prepend(root / "examples" / "gram_matrix" / "src")
    import gram_matrix.hooks  # noqa: PLC0415 - found only now

    registry = Registry.from_plugins([("gram-matrix", gram_matrix.hooks)], with_installed=True)
    check = Draft202012Validator(pipeline_schema(registry))
    document = YAML(typ="safe").load(root / "examples" / "gram_matrix" / "pipeline.yaml")
    assert check.is_valid(document)
    document["model"]["operators"][0]["gram"]["sample"] = 1
    assert not check.is_valid(document)


def test_a_name_of_two_distributions_is_told_apart():
    other = PluginRecord(
        name="annealing", summary="another one", options=NoOptions, factory="other:Other"
    )
    plugins = [("other", plugin_of(explorers=[other]))]
    registry = Registry.from_plugins(plugins, with_installed=True)
    check = Draft202012Validator(pipeline_schema(registry))
    for explorer, fits in [
        ("annealing", True),  # which means that of the default preset
        ("other:annealing", True),
        ({"name": "other:annealing"}, True),
        ({"name": "other:annealing", "chains": 4}, False),
        ({"name": "chameleon-tuner-explorers:annealing", "chains": 4}, True),
        ({"chains": 4}, True),  # the default preset's, which means its own distribution's
    ]:
        document = {**MINIMAL, "explorer": explorer}
        assert check.is_valid(document) is fits, explorer
        try:
            from_dict(document, registry=registry)
        except PipelineError:
            assert not fits, explorer
        else:
            assert fits, explorer


@pytest.mark.parametrize(
    ("named", "sections"),
    [
        ({}, {"model", "space", "cost_model", "sampler", "scheduler", "budget", "baselines"}),
        ({"preset": "paper"}, {"explorer", "synthesizer"}),
    ],
)
def test_misspelt_keys_are_refused_wherever_validate_refuses_them(named, sections, check):
    document = {**expanded({**MINIMAL, **named}), **named}
    paths = [path for path in keys_of(document) if path[0] in sections or len(path) == 1]
    assert len(paths) > 40
    for path in paths:
        changed = misspelt(document, path)
        assert check.is_valid(changed) is not refused(changed), path


def test_so_they_are_in_every_section(check):
    document = {**EVERYTHING, "explorer": "ppo"}
    assert check.is_valid(EVERYTHING)
    assert not check.is_valid(misspelt(EVERYTHING, ("explorer", "explorers", 1, "steps")))
    for path in keys_of(document):
        if len(path) > 1 or path[0] in ("model", "target"):
            changed = misspelt(document, path)
            assert not check.is_valid(changed), path


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("explorer", {"chains": "many", "name": "annealing"}),
        ("explorer", {"name": "annealing", "chains": 0}),
        ("explorer", "no-such"),
        ("explorer", 3),
        ("model", {}),
        ("model", {"builtin": "no-such-network"}),
        ("model", {"operators": [{"dense": {"input": [4, 8]}}]}),
        ("model", {"builtin": "resnet18", "onnx": "x.onnx"}),
        ("target", ""),
        ("target", {"resolver": "tvm"}),
        ("budget", {"measurements": -1}),
        ("budget", {"wall_time": "soon"}),
        ("budget", {"scope": "galaxy"}),
        ("precision", "int3"),
        ("baselines", [None]),
        ("seed", -1),
        ("preset", "no-such"),
        ("output", " "),
        ("fix", {"chains": None}),
        ("fix", {"conv": {"tile": {"deeper": 1}}}),
        ("fix", "tile"),
        ("model", {"onnx": {"file": "x.onnx", "source": "x.onnx"}}),
        ("model", {"onnx": {"layout": "NHWC"}}),
    ],
)
def test_what_validate_refuses_of_values(key, value, check):
    document = {**MINIMAL, key: value}
    assert refused(document)
    assert not check.is_valid(document)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("explorer", "chameleon-tuner-explorers:ppo"),
        ("explorer", {"name": "Chameleon_Tuner.explorers:ppo", "steps": 4}),
        ("runner", {"cold_bytes": 1024}),
        ("model", {"builtin": "resnet18"}),
        ("model", {"builtin": {"network": "resnet18", "batch": 2}}),
        ("model", {"chameleon-tuner-networks:builtin": "resnet18"}),
        ("target", {"text": "native"}),
        ("budget", {"wall_time": "1h30m", "measurements": None}),
        ("records", "none"),
        ("records", None),
        ("warm_start", None),
        ("require", None),
        ("precision", None),
        ("baselines", "onednn"),
        ("fix", None),
        ("fix", {"tile": 8, "conv": {"unroll": 2}}),
        ("model", {"onnx": {"file": "x.onnx"}}),
        ("model", {"onnx": {"source": "x.onnx"}}),
    ],
)
def test_what_validate_takes_of_values(key, value, check):
    document = {**MINIMAL, key: value}
    assert not refused(document)
    assert check.is_valid(document)


def test_missing_keys_are_refused_unless_a_preset_gives_them(check):
    for key in MINIMAL:
        document = {name: MINIMAL[name] for name in MINIMAL if name != key}
        assert check.is_valid(document) is not refused(document)
    assert not check.is_valid({"target": "native"})


def test_every_option_has_a_help(schema):
    """Those of our own plugins: it is all that an editor and the reference can show."""
    for name, section in schema["$defs"].items():
        for option, about in section.get("properties", {}).items():
            assert about.get("description"), f"{name}: {option}"


def test_the_command_prints_and_writes_it(capsys, tmp_path, schema):
    assert run(["schema"]) == ExitCode.OK
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(schema))
    file = tmp_path / "chameleon.json"
    assert run(["schema", "-o", str(file)]) == ExitCode.OK
    assert "# yaml-language-server: $schema=chameleon.json" in capsys.readouterr().out
    assert json.loads(file.read_text())["$schema"] == schema["$schema"]
    assert run(["schema", "-o", str(tmp_path / "no" / "x.json")]) == ExitCode.USAGE
    assert "hint: name a file in a folder" in capsys.readouterr().err
