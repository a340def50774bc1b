"""Pages of what is installed: the pipeline's keys, operators, and every plugin with its options."""

from __future__ import annotations

import inspect
import json
from typing import Any

from chameleon_cli._json_schema.document import StageSchemas, pipeline_schema
from chameleon_core._plugins.event_hooks import EventHooks
from chameleon_core._plugins.kinds import KINDS, STAGES, Kind
from chameleon_core._plugins.registry import Registry

from chameleon_reference.markdown import cell, code, options_table, section, table

SECTIONS = ("budget", "require")
"""Keys of a pipeline whose value is a mapping with options of its own."""

_OTHERS = {
    "frontends": "In a pipeline, a frontend is the only key below `model:`.",
    "operators": "In a pipeline, each entry of `operators:` has an operator as its only key.",
    "targets": "In a pipeline, a target resolver reads the value of `target:`.",
    "templates": "The spaces `auto` and `template` use templates, all or those in `templates`.",
    "instructions": "Templates use instructions of the target, which `chameleon cpu` lists.",
    "baselines": "In a pipeline, the list `baselines:` names baselines.",
    "rivals": "In a suite of `chameleon bench`, `{rival: NAME}` names a rival.",
    "record_databases": "In a pipeline, `records:` names databases, by place or by plugin.",
    "transforms": "In a pipeline, `transforms` in the section `transform` names transforms.",
    "network_scores": "In a pipeline, the list `scores` of the section `transform` names scores.",
    "presets": "In a pipeline, `preset:` names a preset.",
    "commands": "The page on commands has the options of each command.",
}


def pipeline_page(registry: Registry) -> str:
    """The keys of a pipeline file, and the sections of their own."""
    schema = pipeline_schema(registry)
    keys = schema["properties"]
    rows = [
        [
            f"`{key}`",
            cell(code(keys[key]["default"])) if "default" in keys[key] else "",
            cell(keys[key].get("description", "")),
            f"[{STAGES[key]}]({STAGES[key]}.md)" if key in STAGES else "",
        ]
        for key in registry.pipeline_keys
    ]
    parts = [
        section("Pipeline files", "The keys of a pipeline file for `chameleon run`.", level=1),
        table(["key", "default", "meaning", "choices"], rows),
    ]
    for key in (*SECTIONS, *registry.sections):
        members = keys[key].get("anyOf", [keys[key]])
        options = next(member for member in members if "properties" in member)
        about = keys[key]["description"]
        about = f"{about[0].upper()}{about[1:]}."
        parts.append(section(f"`{key}`", about, options_table(options)))
    return "\n".join(parts)


def kind_page(kind: Kind, registry: Registry) -> str:
    """Everything of a kind, with its options."""
    definitions = pipeline_schema(registry)["$defs"]
    key = next((key for key, name in STAGES.items() if name == kind.name), None)
    where = f"In a pipeline, the key `{key}:` chooses one of these plugins."
    where = where if key is not None else _OTHERS[kind.name]
    hook = f"Plugins of this kind register with the hook [`{kind.hook}`](hooks.md)."
    title = kind.name.replace("_", " ").capitalize()
    parts = [section(title, where, hook, level=1)]
    for entry in registry.entries(kind.name):
        name = registry.full_name(entry)
        about = [f"{entry.record.summary.rstrip('.')}. Distribution: `{entry.distribution}`."]
        about += _more(entry.record)
        options = _options(kind, name, entry.record, definitions, registry)
        parts.append(section(f"`{name}`", *about, options))
    return "\n".join(parts)


def _options(
    kind: Kind, name: str, record: Any, definitions: dict[str, Any], registry: Registry
) -> str:
    if kind.name == "operators":
        listed = definitions["frontends.operators"]["anyOf"][0]["properties"]["operators"]
        tagged = listed["items"]["properties"]
        if name not in tagged:
            return "Pipelines cannot name this operator; only networks contain it.\n"
        return options_table(tagged[name]["anyOf"][0])
    if not hasattr(record, "options"):
        return ""
    schema = definitions.get(f"{kind.name}.{name}")
    if schema is None:
        schema = _schema_of(record, registry)
    members = schema.get("anyOf", [schema])
    result = dict(next(member for member in members if "properties" in member))
    result["properties"] = {k: v for k, v in result["properties"].items() if k != "name"}
    return options_table(result)


def _schema_of(record: Any, registry: Registry) -> dict[str, Any]:
    """The options of a stage that no pipeline file names."""
    return StageSchemas(registry).types.section(record.options)


def _more(record: Any) -> list[str]:
    """What else a record says."""
    lines = []
    if getattr(record, "operators", ()):
        lines.append("Operators: " + ", ".join(map(code, record.operators)) + ".")
    if getattr(record, "targets", ()):
        lines.append("Targets: " + ", ".join(map(code, record.targets)) + ".")
    if getattr(record, "precisions", ()):
        lines.append("Dtypes besides float32: " + ", ".join(map(code, record.precisions)) + ".")
    if getattr(record, "architecture", ""):
        needs = ", ".join(map(code, record.features)) or "nothing more"
        lines.append(f"Architecture: `{record.architecture}`; needs {needs}.")
    if hasattr(record, "pipeline"):
        lines.append(f"```json\n{json.dumps(dict(record.pipeline), indent=2)}\n```")
    return lines


def hooks_page() -> str:
    """All hooks: those that register, and those that hear of events."""
    parts = [
        section(
            "Hooks",
            "Functions that a plugin may implement. [Writing a plugin](../plugins.md) says how.",
            level=1,
        )
    ]
    for kind in KINDS.values():
        called = f"Class({', '.join(kind.arguments)})"
        contract = f"Base class: `{kind.contract}`, called as `{called}`." if kind.contract else ""
        record = f"The hook yields objects of the class `{kind.record.__name__}`."
        parts.append(section(f"`{kind.hook}`", kind.summary.replace("``", "`"), record, contract))
    for name, spec in vars(EventHooks).items():
        if name.startswith("chameleon_"):
            parts.append(section(f"`{name}`", _example(inspect.getdoc(spec) or "")))
    return "\n".join(parts)


def _example(docstring: str) -> str:
    """A docstring whose example is a block of Python."""
    lines: list[str] = []
    inside = False
    for line in docstring.splitlines():
        if line.startswith("Example"):
            inside = True
            lines += ["```python"]
        elif line.startswith("Documentation:"):
            continue
        elif inside and line and not line.startswith(" "):
            lines += ["```", "", line]
            inside = False
        else:
            lines.append(line.removeprefix("    ") if inside else line.replace("``", "`"))
    text = "\n".join(lines).rstrip()
    return f"{text}\n```" if inside else text
