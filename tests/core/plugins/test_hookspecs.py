"""What the hook specs say of themselves is true: kinds, examples, links."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
import structlog
from chameleon_core.loop.run import run_pipeline
from chameleon_core.pipeline.load import from_dict
from chameleon_core.plugins import (
    KINDS,
    CommandRecord,
    InstructionRecord,
    NoOptions,
    OperatorRecord,
    PluginRecord,
    PresetRecord,
    Registry,
    TemplateRecord,
    hookimpl,
)
from chameleon_core.plugins.event_hooks import EventHooks
from chameleon_core.plugins.hookspecs import RegistrationHooks
from chameleon_testing.synthetic import synthetic_document, synthetic_registry

ROOT = Path(__file__).parents[3]
EXAMPLE = re.compile(r"\nExample:\n(.*?)\n\nDocumentation: (\S+)$", re.DOTALL)


def specs(of: type) -> list[Any]:
    found = [pair for one in reversed(of.__mro__) for pair in vars(one).items()]
    return [function for name, function in found if name.startswith("chameleon_")]


EVERY = specs(RegistrationHooks) + specs(EventHooks)


class GramArguments(NoOptions):
    """Stands for a third party's."""

    kind = "gram"

    def task(self, name: str, target: str) -> None: ...


def example(spec: Callable[..., Any], **names: Any) -> Any:
    """A module-like object with the implementation that a hook spec shows."""
    code, _ = EXAMPLE.search(inspect.getdoc(spec)).groups()
    namespace = {
        "hookimpl": hookimpl,
        "Options": NoOptions,
        "GramArguments": GramArguments,
        **{one.__name__: one for one in (CommandRecord, OperatorRecord, PluginRecord)},
        **{one.__name__: one for one in (InstructionRecord, PresetRecord, TemplateRecord)},
        **names,
    }
    exec(textwrap.dedent(code), namespace)  # noqa: S102 - our own documentation
    return type("Plugin", (), {spec.__name__: staticmethod(namespace[spec.__name__])})()


@pytest.mark.parametrize("spec", EVERY, ids=lambda spec: spec.__name__)
def test_a_hook_spec_links_to_a_section_of_the_documentation(spec):
    _, link = EXAMPLE.search(inspect.getdoc(spec)).groups()
    file, _, anchor = link.partition("#")
    headings = re.findall(r"^#+ (.*)$", (ROOT / file).read_text(), re.MULTILINE)
    assert anchor in {heading.lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("spec", specs(RegistrationHooks), ids=lambda spec: spec.__name__)
def test_the_example_of_a_kind_registers(spec):
    registry = Registry.from_plugins([example(spec)])
    assert not registry.errors
    (kind,) = (kind for kind in KINDS.values() if kind.hook == spec.__name__)
    (entry,) = registry.entries(kind.name)
    assert (type(entry.record),) == get_args(get_type_hints(spec)["return"])


def test_the_examples_of_events_hear_a_run(tmp_path):
    def listener(spec: Any) -> Any:
        return example(spec, log=structlog.get_logger().bind(hook=spec.__name__))

    plugins = [listener(spec) for spec in specs(EventHooks)]
    registry = synthetic_registry(*plugins)
    document = synthetic_document(tmp_path / "run", failing=30)
    with structlog.testing.capture_logs() as said:
        run_pipeline(
            from_dict(document, registry=registry), listeners=registry.manager.get_plugins()
        )
    heard = {line["hook"] for line in said if "hook" in line}
    # A synthetic model delivers nothing, so there is nothing to check beforehand.
    checks = {"chameleon_check_started", "chameleon_check_finished"}
    assert heard == {spec.__name__ for spec in specs(EventHooks)} - checks
    assert not [line for line in said if "listener" in line["event"]]


def test_kinds_are_in_the_order_of_their_hooks():
    assert [kind.hook for kind in KINDS.values()] == [
        spec.__name__ for spec in specs(RegistrationHooks)
    ]
    assert KINDS["cost_models"].noun == "cost model"
    assert KINDS["targets"].noun == "target resolver"
