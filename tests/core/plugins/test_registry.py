"""Names find records, and records become stages."""

import inspect
import json
import re
import sys
import textwrap
import threading
import types
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from types import ModuleType
from typing import Any

import attrs
import pluggy
import pytest
import structlog
from chameleon_core._errors import ConfigError, ExitCode, PluginError
from chameleon_core._loop.run import run_pipeline
from chameleon_core._pipeline.load import from_dict
from chameleon_core._plugins.event_hooks import EventHooks
from chameleon_core._plugins.factory import hint_after
from chameleon_core._plugins.first_party import FIRST_PARTY
from chameleon_core._plugins.hookspecs import PROJECT
from chameleon_core._plugins.kinds import hook_specs
from chameleon_core._plugins.registry import AmbiguousNameError, UnknownNameError
from chameleon_core.api import Registry
from chameleon_core.plugin_api import (
    KINDS,
    CommandRecord,
    Kind,
    PluginRecord,
    PresetRecord,
    Section,
    SectionRecord,
    hookimpl,
    load_factory,
)
from synthetic import (
    SYNTHETIC,
    SyntheticExplorer,
    SyntheticUntuned,
    plugin_of,
    record_of,
    synthetic_document,
    synthetic_registry,
)


@attrs.frozen(kw_only=True)
class Options:
    size: int = 3


class Sampler:
    """Has what a sampler needs, without being derived from the contract."""

    def __init__(self, options: Options, context: Any) -> None:
        self.options, self.context = options, context

    def select(self, candidates, visited, count):
        raise NotImplementedError


class Idle:
    """Lacks what a sampler needs."""

    def __init__(self, options: Options, context: Any) -> None:
        pass


def refuse(options: Options, context: Any) -> None:
    raise ConfigError("not on this machine", hint="take another")


def confuse(options: Options, context: Any) -> None:
    raise TypeError


@pytest.fixture(autouse=True)
def module(monkeypatch):
    registry = ModuleType("registry_test_module")
    registry.__dict__.update(Sampler=Sampler, Idle=Idle, refuse=refuse, confuse=confuse, number=3)
    monkeypatch.setitem(sys.modules, registry.__name__, registry)


def plugin(*names, **factories):
    """A plugin with samplers of these names, or made by these members of the module above."""
    made = {**dict.fromkeys(names, "Sampler"), **factories}
    records = [
        PluginRecord(name=n, summary=n, factory=f"registry_test_module:{member}", options=Options)
        for n, member in made.items()
    ]
    return plugin_of(samplers=records)


def test_two_with_one_name_are_an_error_that_names_both_when_the_name_is_used():
    registry = Registry.from_plugins([("one", plugin("a", "b")), ("Two_Dist", plugin("a", "c"))])
    assert not registry.errors
    assert registry.record("samplers", "b").name == "b"
    with pytest.raises(AmbiguousNameError, match="'a' is registered by 'one' and 'Two_Dist'") as e:
        registry.find("samplers", "a")
    assert e.value.hint == "write 'one:a' or 'Two_Dist:a'"
    assert e.value.exit_code == ExitCode.PLUGIN
    assert registry.find("samplers", "two-dist:a").distribution == "Two_Dist"
    with pytest.raises(UnknownNameError):
        registry.find("samplers", "one:c")


def test_an_unknown_name_is_answered_with_a_guess_and_with_what_to_install():
    registry = Registry.from_plugins([("one", plugin("greedy"))])
    with pytest.raises(UnknownNameError, match="unknown sampler 'gredy'; did you mean") as caught:
        registry.find("samplers", "gredy")
    assert "installed samplers: greedy" in caught.value.hint
    brings = "chameleon-tuner-samplers brings some: `pip install ./packages/chameleon-samplers`"
    assert brings in caught.value.hint
    with pytest.raises(UnknownNameError) as caught:
        registry.find("explorers", "ppo")
    assert str(caught.value) == "unknown explorer 'ppo'", "there is nothing to guess from"
    assert "no explorer is installed" in caught.value.hint
    have = Registry.from_plugins([("chameleon-tuner-samplers", plugin("greedy"))])
    with pytest.raises(UnknownNameError) as caught:
        have.find("samplers", "x")
    assert "pip install" not in caught.value.hint


def test_a_stage_is_made_with_default_or_given_options():
    registry = Registry.from_plugins([plugin("a")])
    assert registry.create("samplers", "a").options == Options()
    stages = registry.create("samplers", "a", Options(size=5), context="here")
    assert (stages.options.size, stages.context) == (5, "here")


def test_a_stage_without_its_contracts_methods_is_refused_when_it_is_made():
    made = plugin(idle="Idle", wrong="number", no="refuse", odd="confuse")
    registry = Registry.from_plugins([made])
    with pytest.raises(PluginError, match="sampler 'idle' lacks 'select'"):
        registry.create("samplers", "idle")
    with pytest.raises(PluginError, match="cannot be called"):
        registry.create("samplers", "wrong")
    with pytest.raises(ConfigError, match="not on this machine"):
        registry.create("samplers", "no")
    with pytest.raises(PluginError, match="sampler 'odd' cannot be made: TypeError"):
        registry.create("samplers", "odd")


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        ("no_such_module:X", "cannot be imported: No module named 'no_such_module'"),
        ("registry_test_module:Missing", "AttributeError"),
        ("registry_test_module", "another form"),
        (":X", "another form"),
        ("registry_test_module:number", "is an int and cannot be called"),
    ],
)
def test_a_factory_that_cannot_be_loaded_says_why(factory, message):
    with pytest.raises(PluginError, match=message) as caught:
        load_factory(factory)
    assert caught.value.hint


def test_a_factory_may_be_nested():
    assert load_factory("registry_test_module:Sampler.select") is Sampler.select


def test_a_factory_waits_until_another_thread_has_imported_its_module(tmp_path, monkeypatch):
    """Listings of winners had failed now and then because threads saw half of a module."""
    gate = types.ModuleType("gate")
    gate.begun, gate.go = threading.Event(), threading.Event()
    monkeypatch.setitem(sys.modules, "gate", gate)
    monkeypatch.syspath_prepend(tmp_path)
    lines = ["import gate", "gate.begun.set()", "gate.go.wait(60)", "def late(): ..."]
    (tmp_path / "slow_module.py").write_text("\n".join(lines))
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(load_factory, "slow_module:late")
        gate.begun.wait(60)
        second = pool.submit(load_factory, "slow_module:late")
        wait([second], timeout=0.2)
        gate.go.set()
        assert first.result() is second.result()


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.name)
def test_every_contract_exists(kind):
    if kind.contract is not None:
        # Where the core is tested alone, the contracts of others are not there.
        pytest.importorskip(kind.contract.partition(".")[0])
        assert load_factory(kind.contract).__abstractmethods__


def test_installed_plugins_can_be_joined_by_own_ones():
    registry = Registry.from_plugins([plugin("mine")], with_installed=True)
    assert "mine" in registry.names("samplers")
    assert "chameleon-tuner-core" in registry.distributions


def test_a_hint_names_what_is_missing_or_says_how_to_see_the_traceback():
    missing = ModuleNotFoundError("No module named 'surely.missing'", name="surely.missing")
    assert "the module 'surely'" in hint_after(missing)
    own = ModuleNotFoundError("No module named 'pytest.optionz'", name="pytest.optionz")
    assert hint_after(own) == (
        "the package 'pytest' has no module 'pytest.optionz': correct the import"
    )
    assert "--debug" in hint_after(ZeroDivisionError())


ROOT = Path(__file__).parents[3]
OURS, THEIRS = "chameleon-tuner-explorers", "another-tuner"
STAGES = ("space", "explorer", "cost_model", "sampler", "synthesizer")


COPY = plugin_of(
    explorers=[record_of(SyntheticExplorer, name="synthetic")],
    baselines=[record_of(SyntheticUntuned, name="synthetic")],
)
"""Registers an explorer and a baseline under names that others have."""


def preset(**more):
    """A plugin with a default preset that names synthetic stages."""
    stages = {**dict.fromkeys(STAGES, "synthetic"), "scheduler": "round-robin"}
    pipeline = {**stages, "runner": "synthetic", "baselines": ["synthetic"], **more}
    return plugin_of(presets=[PresetRecord(name="default", summary="", pipeline=pipeline)])


def _registry(*more):
    from chameleon_core import hooks  # noqa: PLC0415

    core = ("chameleon-tuner-core", hooks)
    registry = Registry.from_plugins([core, (OURS, SYNTHETIC), *more])
    assert not registry.errors
    return registry


def _load(registry, tmp_path, **more):
    document = synthetic_document(tmp_path / "run")
    base = {key: document[key] for key in ("model", "target", "output", "budget")}
    return from_dict({**base, **more}, registry=registry)


@pytest.mark.parametrize(
    ("default", "meant"), [(OURS, OURS), ("chameleon-tuner", OURS), (THEIRS, THEIRS)]
)
def test_a_default_means_its_own_distributions_then_the_projects(tmp_path, default, meant):
    registry = _registry((THEIRS, COPY), (default, preset()))
    pipeline = _load(registry, tmp_path)
    assert (pipeline.explorer.distribution, pipeline.explorer.name) == (meant, f"{meant}:synthetic")
    assert pipeline.sampler.name == "synthetic", "nobody else has one of that name"
    assert from_dict(pipeline.document, registry=registry).document == pipeline.document


def test_a_default_of_somebody_elses_is_not_everybodys(tmp_path):
    theirs = preset(seed=7)
    registry = _registry((OURS, preset()), (THEIRS, theirs))
    assert _load(registry, tmp_path).seed == 0
    assert _load(registry, tmp_path, preset=f"{THEIRS}:default").seed == 7


def test_who_writes_such_a_name_has_to_say_whose(tmp_path):
    registry = _registry((THEIRS, COPY), (OURS, preset()))
    with pytest.raises(Exception, match="explorer 'synthetic' is registered by"):
        _load(registry, tmp_path, explorer="synthetic")
    with pytest.raises(AmbiguousNameError):
        registry.find("explorers", "synthetic")
    chosen = _load(registry, tmp_path, explorer=f"{THEIRS}:synthetic")
    assert chosen.explorer.distribution == THEIRS


def test_a_requirement_may_name_the_baseline_of_a_preset(tmp_path):
    registry = _registry((THEIRS, COPY), (OURS, preset()))
    require = {"min_ratio": 0.1, "against": "synthetic"}
    assert run_pipeline(_load(registry, tmp_path, require=require)).missed == []


def test_a_run_goes_on_after_such_a_plugin_was_installed(tmp_path):
    budget = {"measurements": 4, "batch_size": 4}
    run_pipeline(_load(_registry((OURS, preset())), tmp_path, budget=budget))
    crowded = _registry((OURS, preset()), (THEIRS, COPY))
    result = run_pipeline(_load(crowded, tmp_path))
    assert [operator.measurements for operator in result.operators] == [20, 20]
    assert [operator.origins["initial"] for operator in result.operators] == [4, 4]


def test_the_projects_distributions_are_those_of_the_repository():
    projects = [path.read_text() for path in (ROOT / "packages").glob("*/pyproject.toml")]
    names = {json.loads(re.search(r'^name = (".*")$', text, re.MULTILINE)[1]) for text in projects}
    assert names == FIRST_PARTY


EXAMPLE = re.compile(r"\nExample:\n(.*?)\n\nDocumentation: (\S+)$", re.DOTALL)


PLUGINS = (ROOT / "docs" / "plugins.md").read_text()
EVENTS = [spec for name, spec in vars(EventHooks).items() if name.startswith("chameleon_")]


def example(spec, **names):
    """A module-like object with the implementation that a hook spec shows."""
    code, _ = EXAMPLE.search(inspect.getdoc(spec)).groups()
    namespace = {"hookimpl": hookimpl, **names}
    exec(textwrap.dedent(code), namespace)  # noqa: S102 - our own documentation
    return type("Plugin", (), {spec.__name__: staticmethod(namespace[spec.__name__])})()


@pytest.mark.parametrize("spec", EVENTS, ids=lambda spec: spec.__name__)
def test_a_hook_spec_links_to_a_section_of_the_documentation(spec):
    _, link = EXAMPLE.search(inspect.getdoc(spec)).groups()
    file, _, anchor = link.partition("#")
    headings = re.findall(r"^#+ (.*)$", (ROOT / file).read_text(), re.MULTILINE)
    assert anchor in {heading.lower().replace(" ", "-") for heading in headings}


def test_pluggy_reads_the_hook_specs_of_the_table():
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(hook_specs(KINDS.values()))
    for kind in KINDS.values():
        assert getattr(manager.hook, kind.hook).spec.function.__doc__ == kind.summary


def test_the_documentation_shows_presets_commands_and_kinds_that_register():
    shown = re.findall(r"^```python\n(@hookimpl.*?)^```", PLUGINS, re.MULTILINE | re.DOTALL)
    hooks = types.ModuleType("hooks")
    names = {row.__name__: row for row in (CommandRecord, Kind, PresetRecord, SectionRecord)}
    upload = attrs.make_class("Upload", {}, bases=(Section,))
    hooks.__dict__.update(names, hookimpl=hookimpl, Upload=upload)
    for code in shown:
        exec(code, hooks.__dict__)  # noqa: S102 - our own documentation
    registry = Registry.from_plugins([hooks])
    assert not registry.errors
    assert (registry.names("presets"), registry.names("commands")) == (("quick",), ("upload",))
    assert registry.kinds["placers"].noun == "placer"
    assert registry.sections["upload"].options is upload


def test_the_examples_of_events_hear_a_run(tmp_path):
    def listener(spec):
        return example(spec, log=structlog.get_logger().bind(hook=spec.__name__))

    registry = synthetic_registry(*[listener(spec) for spec in EVENTS])
    document = synthetic_document(tmp_path / "run", failing=30)
    with structlog.testing.capture_logs() as said:
        run_pipeline(
            from_dict(document, registry=registry), listeners=registry.manager.get_plugins()
        )
    heard = {line["hook"] for line in said if "hook" in line}
    # A synthetic model delivers nothing, so there is nothing to check beforehand.
    checks = {"chameleon_check_started", "chameleon_check_finished"}
    assert heard == {spec.__name__ for spec in EVENTS} - checks
    assert not [line for line in said if line["event"] == "event_hook_left_out"]
