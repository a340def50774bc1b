"""What a pipeline becomes: presets, defaults, overrides, paths, and the way back to YAML."""

import json
from pathlib import Path
from typing import Any

import attrs
import pytest
from chameleon_core._pipeline.annotations import parse_duration
from chameleon_core._pipeline.binding import difference
from chameleon_core._pipeline.load import from_dict, load_pipeline
from chameleon_core._pipeline.nodes import PipelineError
from chameleon_core._pipeline.schema import Scope, StageSpec
from chameleon_core._pipeline.stage_reader import create_stage
from chameleon_core._pipeline.yaml import dump_yaml, parse_yaml
from chameleon_core.api import Registry
from chameleon_core.plugin_api import NoOptions, PluginRecord
from hypothesis import example, given
from hypothesis import strategies as st
from synthetic import plugin_of, record_of, synthetic_document, synthetic_registry

HEAD = "model: {operators: [{conv2d: {channels: 3}}]}\ntarget: llvm -mcpu=native\n"


def test_model_and_target_are_enough(load, tmp_path):
    pipeline = load(HEAD)
    assert pipeline.model.name == "operators"
    assert pipeline.target == "llvm -mcpu=native"
    assert pipeline.target_resolver.name == "compiler"
    assert pipeline.explorer.options.chains == 64
    assert pipeline.explorer.options_json["clip_range"] == 0.3
    assert [spec.name for spec in pipeline.baselines] == ["untuned"]
    assert (pipeline.budget.measurements, pipeline.budget.batch_size) == (100, 10)
    assert pipeline.budget.scope is Scope.TASK
    assert pipeline.output == tmp_path / "runs" / "pipeline"
    assert pipeline.seed == 0


def test_a_named_preset_replaces_whole_sections_of_the_default(load):
    pipeline = load(HEAD + "preset: hot\n")
    assert pipeline.preset == "hot"
    assert pipeline.explorer.options.clip_range == 0.1
    assert pipeline.explorer.options.chains == 128  # not the default preset's 64
    assert (pipeline.budget.measurements, pipeline.budget.batch_size) == (256, 64)
    assert pipeline.sampler.name == "greedy"


def test_the_file_changes_single_options_of_the_stage_a_preset_chose(load):
    explorer = load(HEAD + "explorer: {clip_range: 0.5}\nbudget: {wall_time: 1h30m}\n").explorer
    assert (explorer.options.chains, explorer.options.clip_range) == (64, 0.5)
    assert load(HEAD + "explorer: annealing\n").explorer.options.chains == 64


def test_another_stage_brings_none_of_the_presets_options(load):
    assert load(HEAD + "explorer: random\n").explorer.options_json == {}


def test_overrides_are_stronger_than_the_file(load):
    text = HEAD + "explorer: annealing\nseed: 1\n"
    pipeline = load(
        text,
        "seed=7",
        "explorer.chains=5",
        "explorer.temperature.start=2",
        "budget.wall_time=20m",
        "model.operators.0.conv2d.channels=9",
        "baselines=[vendor]",
        "preset=hot",
    )
    assert pipeline.seed == 7
    assert pipeline.explorer.options.chains == 5
    assert pipeline.explorer.options.temperature.start == 2.0
    assert pipeline.budget.wall_time == 1200.0
    assert pipeline.model.options.operators[0].channels == 9
    assert [spec.name for spec in pipeline.baselines] == ["vendor"]
    assert pipeline.explorer.options.clip_range == 0.1


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        ("", (100, None)),
        ("budget: {wall_time: 20m}\n", (None, 1200.0)),
        ("budget: {measurements: 7}\n", (7, None)),
        ("budget: {measurements: null, wall_time: 20m}\n", (None, 1200.0)),
        ("budget: {measurements: 7, wall_time: 20m}\n", (7, 1200.0)),
        ("budget: {wall_time: null}\n", (100, None)),
        ("budget: {measurements: null, patience: 9}\n", (None, None)),
        ("budget: {patience: 9}\n", (100, None)),
        ("preset: hot\nbudget: {wall_time: 20m}\n", (None, 1200.0)),
    ],
)
def test_who_names_one_limit_means_that_one(load, text, limits):
    budget = load(HEAD + text).budget
    assert (budget.measurements, budget.wall_time) == limits
    if "preset" not in text:
        assert budget.batch_size == 10, "all else is the preset's still"


def test_a_limit_that_is_null_stays_null_when_it_is_written_and_read(load):
    pipeline = load(HEAD + "budget: {wall_time: 20m}\n")
    assert pipeline.document["budget"]["measurements"] is None
    assert load(dump_yaml(dict(pipeline.document))).budget == pipeline.budget


def test_a_number_with_an_exponent_is_a_number(load):
    assert load(HEAD + "explorer: {clip_range: 3e-4}\n").explorer.options.clip_range == 3e-4
    assert load(HEAD + "explorer: {clip_range: 2}\n").explorer.options.clip_range == 2.0


def test_the_tag_picks_the_class_and_files_become_absolute(load, tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b.py").touch()
    text = "model: {operators: [conv2d: {channels: 3, stride: [3, 3]}, primfunc: a/b.py:gelu]}\n"
    pipeline = load(text + "target: native\n")
    conv, func = pipeline.model.options.operators
    assert conv.stride == (3, 3)
    assert func.source == f"{tmp_path}/a/b.py:gelu"
    assert pipeline.model.options_json == {
        "operators": [
            {"conv2d": {"channels": 3, "stride": [3, 3]}},
            {"primfunc": {"label": "", "source": f"{tmp_path}/a/b.py:gelu"}},
        ]
    }
    modules = load("model: {operators: [primfunc: my.nets:gelu]}\ntarget: native\n")
    assert modules.model.options.operators[0].source == "my.nets:gelu"


def test_inputs_are_relative_to_the_file_and_the_output_to_the_working_folder(
    registry, tmp_path, monkeypatch
):
    (tmp_path / "nets").mkdir()
    (tmp_path / "work").mkdir()
    file = tmp_path / "nets" / "p.yaml"
    file.write_text("model: {onnx: net.onnx}\ntarget: native\noutput: out\n")
    monkeypatch.chdir(tmp_path / "work")
    pipeline = load_pipeline(file, registry=registry)
    assert pipeline.model.options.path == str(tmp_path / "nets" / "net.onnx")
    assert pipeline.output == tmp_path / "work" / "out"
    values = from_dict(
        {"model": {"onnx": "net.onnx"}, "target": "x"}, registry=registry, folder=Path("/models")
    )
    assert values.model.options.path == "/models/net.onnx"


def test_the_expanded_pipeline_loads_to_itself_without_presets(load, registry):
    pipeline = load(
        HEAD + "preset: hot\nexplorer: {sizes: [1, 2], weights: {a: 1e-7}, pause: 90s}\n"
        "require: {min_ratio: 0.9, against: untuned}\nbudget: {patience: 5}\n"
    )
    again = load(dump_yaml(dict(pipeline.document)), f"output={pipeline.output}")
    assert again.document == pipeline.document
    assert again.explorer == pipeline.explorer
    assert again.digest == pipeline.digest
    assert from_dict(pipeline.document, registry=registry).document == pipeline.document


def test_the_digest_is_of_the_search_and_not_of_its_budget(load):
    digest = load(HEAD).digest
    assert load(HEAD + "budget: {measurements: 7}\noutput: elsewhere\n").digest == digest
    assert load(HEAD + "seed: 1\n").digest != digest
    assert load(HEAD + "explorer: {chains: 65}\n").digest != digest


def test_several_target_resolvers_must_be_told_apart(fakes, load, faults):
    using = fakes.registry(("second", plugin_of(targets=[fakes.record("other")])))
    (line,) = faults(HEAD, using=using)
    assert line.startswith("pipeline.yaml:2:9: several plugins read targets; write {resolver: ")
    text = "model: {onnx: a}\ntarget: {resolver: other, text: fpga}\n"
    pipeline = load(text, using=using)
    assert (pipeline.target, pipeline.target_resolver.name) == ("fpga", "other")
    assert pipeline.document["target"] == {"resolver": "other", "text": "fpga"}


def test_a_target_may_be_a_mapping(fakes, load, faults):
    model, mapping = "model: {onnx: a}\n", "{kind: llvm, mcpu: znver4, num-cores: 2}"
    pipeline = load(f"{model}target: {mapping}\n")
    assert json.loads(pipeline.target) == {"kind": "llvm", "mcpu": "znver4", "num-cores": 2}
    assert pipeline.document["target"] == json.loads(pipeline.target)
    assert load(dump_yaml(dict(pipeline.document))).target == pipeline.target
    assert json.loads(load(f"{model}target: {mapping}\n", "target.num-cores=3").target) == {
        **pipeline.document["target"],
        "num-cores": 3,
    }
    chosen = load(f"{model}target: {{resolver: compiler, text: {mapping}}}\n")
    assert chosen.target == pipeline.target
    (line,) = faults(f"{model}target: {{mcpu: znver4}}\n")
    assert line.startswith("pipeline.yaml:2:9: 'target' has no 'kind'; a mapping is such as {kind")
    (line,) = faults(f"{model}target: {{resolvr: compiler}}\n")
    assert "has no 'kind'; did you mean 'resolver'?" in line


@attrs.frozen(kw_only=True)
class Renamed:
    source: str = attrs.field(metadata={"former": "file", "path": True})
    batch: int = 1


RENAMED = PluginRecord(name="net", summary="", factory="fractions:Fraction", options=Renamed)
RENAMING = plugin_of(frontends=[RENAMED])


def test_an_option_is_read_by_its_former_name(fakes, load, faults, tmp_path):
    using = fakes.registry(("renaming", RENAMING))
    text = "model: {net: {NAME: a.net, batch: 2}}\ntarget: native\n"
    today = load(text.replace("NAME", "source"), using=using)
    former = load(text.replace("NAME", "file"), using=using)
    assert former.model.options == today.model.options
    assert former.document == today.document
    assert today.document["model"]["net"] == {"source": str(tmp_path / "a.net"), "batch": 2}
    (line,) = faults(text.replace("NAME: a", "file: b, source: a"), using=using)
    assert line.startswith("pipeline.yaml:1:15: option 'file' for frontend 'net' is the former")


def test_a_folder_with_an_option_s_former_name_is_of_the_same_pipeline(fakes, load):
    using = fakes.registry(("renaming", RENAMING))
    pipeline = load("model: {net: {source: a.net}}\ntarget: native\n", using=using)
    section = dict(pipeline.document["model"]["net"])
    section["file"] = section.pop("source")
    old = {**pipeline.document, "model": {"net": section}}
    assert difference(old, pipeline) is None
    section["file"] = "elsewhere"
    assert difference(old, pipeline).startswith('model.net.source was "elsewhere" and is ')


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("20m", 1200),
        ("90s", 90),
        ("1h30m", 5400),
        ("1.5h", 5400),
        ("250ms", 0.25),
        ("1d 2h", 93600),
    ],
)
def test_durations(text, seconds):
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "20", "m", "20m1h", "-1s", "1h1h", "1 hour", "20 min"])
def test_what_is_no_duration(text):
    with pytest.raises(ValueError, match="duration"):
        parse_duration(text)


_SCALARS = st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False)
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.text(), _VALUES, max_size=4))
@example({"": ["?0"]})
def test_what_is_written_reads_back_the_same(document):
    assert parse_yaml(dump_yaml(document), "x").plain() == document


@attrs.frozen(kw_only=True)
class TeamOptions:
    members: tuple[StageSpec | str, ...] = attrs.field(
        default=("first", "second"), metadata={"stages": "explorers"}
    )


@attrs.frozen(kw_only=True)
class FirstOptions:
    steps: int = 3


class First:
    """Has what an explorer needs."""

    def __init__(self, options: Any, context: Any) -> None:
        self.options, self.context = options, context

    def explore(self, *_): ...

    def observe(self, *_): ...


class Foreign(First):
    """Another distribution's."""


def explorers(factory, **options):
    """A plugin with explorers of a class."""
    return plugin_of(explorers=[record_of(factory, own, name=n) for n, own in options.items()])


OURS = "ours", explorers(First, team=TeamOptions, first=FirstOptions, second=NoOptions)
THEIRS = "theirs", explorers(Foreign, first=NoOptions, third=NoOptions)


def team(tmp_path, *plugins, explorer="team"):
    registry = synthetic_registry(*plugins)
    document = synthetic_document(tmp_path / "run", explorer=explorer)
    return from_dict(document, registry=registry).explorer


def made(spec):
    return [create_stage("explorers", member, "context") for member in spec.options.members]


def test_members_by_default_are_the_run_s_and_stay_written_as_names(tmp_path):
    chosen = team(tmp_path, OURS)
    assert all(isinstance(member, StageSpec) for member in chosen.options.members)
    first, second = made(chosen)
    assert (first.options, second.options) == (FirstOptions(), NoOptions())
    assert first.context == "context"
    assert chosen.options_json == {"members": ["first", "second"]}


def test_a_default_s_names_are_its_own_distribution_s_though_another_uses_them(tmp_path):
    first, _ = made(team(tmp_path, OURS, THEIRS))
    assert type(first) is First


def test_a_third_party_s_member_may_be_told_apart_by_its_distribution(tmp_path):
    written = {"name": "team", "members": ["third", "theirs:first", {"name": "ours:first"}]}
    third, theirs, ours = made(team(tmp_path, OURS, THEIRS, explorer=written))
    assert [type(row) for row in (third, theirs, ours)] == [Foreign, Foreign, First]
    with pytest.raises(PipelineError, match="'first' is registered by 'ours' and 'theirs'"):
        team(tmp_path, OURS, THEIRS, explorer={"name": "team", "members": ["first"]})


def test_a_default_that_nobody_brings_is_said_when_the_pipeline_is_read(tmp_path):
    alone = "ours", explorers(First, team=TeamOptions, first=FirstOptions)
    with pytest.raises(PipelineError, match="unknown explorer 'second'"):
        team(tmp_path, alone)


def test_options_made_without_a_pipeline_name_installed_stages():
    installed = Registry.load()
    if "random" not in installed.names("explorers"):
        pytest.skip("no explorers are installed")
    assert hasattr(create_stage("explorers", "random", _Context()), "explore")


class _Context:
    """What the explorer of random configurations reads."""

    space = rng = None
