"""The hook specs, and the examples that they and the documentation show, are true."""

from __future__ import annotations

import inspect
import re
import textwrap
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pluggy
import pytest
import structlog
from chameleon_core.loop.run import run_pipeline
from chameleon_core.pipeline.load import from_dict
from chameleon_core.plugins import KINDS, PROJECT, CommandRecord, Kind, PresetRecord, Registry
from chameleon_core.plugins.event_hooks import EventHooks
from chameleon_core.plugins.hookspecs import hookimpl
from chameleon_core.plugins.kinds import hook_specs
from synthetic import synthetic_document, synthetic_registry

ROOT = Path(__file__).parents[3]
EXAMPLE = re.compile(r"\nExample:\n(.*?)\n\nDocumentation: (\S+)$", re.DOTALL)


PLUGINS = (ROOT / "docs" / "plugins.md").read_text()
EVENTS = [spec for name, spec in vars(EventHooks).items() if name.startswith("chameleon_")]


def example(spec: Callable[..., Any], **names: Any) -> Any:
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
    names = {one.__name__: one for one in (CommandRecord, Kind, PresetRecord)}
    hooks.__dict__.update(names, hookimpl=hookimpl)
    for code in shown:
        exec(code, hooks.__dict__)  # noqa: S102 - our own documentation
    registry = Registry.from_plugins([hooks])
    assert not registry.errors
    assert (registry.names("presets"), registry.names("commands")) == (("quick",), ("upload",))
    assert registry.kinds["placers"].noun == "placer"


def test_the_examples_of_events_hear_a_run(tmp_path):
    def listener(spec: Any) -> Any:
        return example(spec, log=structlog.get_logger().bind(hook=spec.__name__))

    plugins = [listener(spec) for spec in EVENTS]
    registry = synthetic_registry(*plugins)
    document = synthetic_document(tmp_path / "run", failing=30)
    with structlog.testing.capture_logs() as said:
        run_pipeline(
            from_dict(document, registry=registry), listeners=registry.manager.get_plugins()
        )
    heard = {line["hook"] for line in said if "hook" in line}
    # A synthetic model delivers nothing, so there is nothing to check beforehand.
    checks = {"chameleon_check_started", "chameleon_check_finished"}
    assert heard == {spec.__name__ for spec in EVENTS} - checks
    assert not [line for line in said if "listener" in line["event"]]


def test_a_noun_may_be_another_word_than_the_name():
    assert KINDS["cost_models"].noun == "cost model"
    assert KINDS["targets"].noun == "target resolver"
