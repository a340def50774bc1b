"""Combines presets, the pipeline file and ``--set``, and writes the result as YAML.

From weakest to strongest: the preset ``default``, the preset that the file names, the file, and the
overrides. If a stronger layer names another stage, the weaker layer's options of this key are
dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from chameleon_core._pipeline.nodes import Item, Mark, Node, PipelineError, expand_shorthand
from chameleon_core._pipeline.schema import LIMITS, Scope
from chameleon_core._pipeline.yaml import parse_value
from chameleon_core._plugins.first_party import CORE
from chameleon_core._plugins.kinds import STAGES
from chameleon_core._plugins.records import SectionRecord
from chameleon_core._plugins.registry import DEFAULT_PRESET, Registry

SEARCH = ("explorer", "cost_model", "sampler", "synthesizer")
"""The pipeline keys of the search stages."""

_MERGED = frozenset({"budget", "require"})

_EACH = "unpredicted"

Section = dict[str, Item]

Sections = Mapping[str, SectionRecord]
"""The sections of plugins by name."""


def apply_overrides(
    root: Node,
    overrides: Iterable[str],
    sections: Mapping[str, SectionRecord] = MappingProxyType({}),
) -> tuple[Node, list[PipelineError.Problem]]:
    """Apply assignments such as ``a.b=value``; the values are YAML.

    Args:
        root: the user's pipeline.
        overrides: the assignments.
        sections: the sections of plugins by name.

    Returns:
        The pipeline after the valid assignments, and the faults of the others. An assignment is a
        fault if it is no YAML, or sets a key inside a value that is no mapping.
    """
    problems: list[PipelineError.Problem] = []
    for text in overrides:
        mark = Mark(source=f"--set {text}")
        path, equals, value = text.partition("=")
        keys = [key.strip() for key in path.split(".")]
        try:
            if not equals or not all(keys):
                raise PipelineError.at(mark, "write it as key=value or key.option=value")
            node = parse_value(value, mark.source)
            root = _assigned(_opened(root, keys, sections), keys, node)
        except PipelineError as error:
            problems.extend(error.problems)
    return root, problems


def expand_presets(root: Node, preset: str | None, registry: Registry) -> Node:
    """Add the keys of a pipeline's presets that the pipeline itself does not set.

    Args:
        root: the user's pipeline, a mapping.
        preset: the preset that the pipeline names, or None.
        registry: the registry with the presets.

    Raises:
        PluginError: the preset is unknown, or two distributions have a preset of this name.
    """
    weak: Section = {}
    layers = [] if preset is None else [preset]
    # `dist:default` picks one of several defaults.
    named = preset is not None and preset.rpartition(":")[2] == DEFAULT_PRESET
    if not named and DEFAULT_PRESET in registry.names("presets"):
        layers.insert(0, DEFAULT_PRESET)
    for name in layers:
        # If the user names no preset, it is this project's own, even if a plugin has the same name.
        entry = registry.find("presets", name, author=None if name == preset else CORE)
        # A preset's section replaces the whole section of the default preset.
        weak |= Node.of(entry.record.pipeline, f"preset '{name}'", author=entry.distribution).value
    return Node(value=merge(weak, dict(root.items())), mark=root.mark)


def merge(weak: Section, strong: Section) -> Section:
    """Combine two pipelines. Values of ``strong`` override those of ``weak``."""
    result = dict(weak)
    for key, item in strong.items():
        below = weak.get(key)
        node = item.node
        if below is not None and key in STAGES:
            node = _merged_stage(below.node, node)
        elif below is not None and key in _MERGED and below.node.is_mapping and node.is_mapping:
            node = Node(value={**_kept(below.node.value, node), **node.value}, mark=node.mark)
        result[key] = Item(key_mark=item.key_mark, node=node)
    return result


def _merged_stage(weak: Node, strong: Node) -> Node:
    old, new = _name(weak), _name(strong)
    if not (strong.is_mapping or isinstance(strong.value, str)):
        return strong
    if new is not None and (old is None or new.value != old.value):
        return strong
    sections = [node.value for node in (weak, strong) if node.is_mapping]
    name = new or old
    value: Section = {} if name is None else {"name": Item(key_mark=name.mark, node=name)}
    for section in sections:
        value |= section
    return Node(value=value, mark=strong.mark)


def _kept(weak: Section, strong: Node) -> Section:
    """The part of a weaker budget that still holds under a stronger budget.

    If the stronger budget has a limit, the weaker limits no longer hold. ``null`` removes only the
    limit of its name. ``unpredicted`` is a limit for each task, so it also ends if the stronger
    budget is for all tasks together.
    """
    values = {key: item.node.value for key, item in strong.items()}
    limited = any(values.get(name) is not None for name in LIMITS)
    gone = {*LIMITS, _EACH} if limited else {_EACH} if values.get("scope") == Scope.NETWORK else {}
    return {key: item for key, item in weak.items() if key not in gone}


def _name(stage: Node) -> Node | None:
    return stage.get("name") if stage.is_mapping else stage


def _opened(root: Node, keys: list[str], sections: Sections) -> Node:
    """The pipeline with ``stage: name`` as ``stage: {name: name}``, if an option of it is set."""
    stage = root.get(keys[0])
    if len(keys) == 1 or stage is None or not isinstance(stage.value, str):
        return root
    if keys[0] in sections:
        section = expand_shorthand(stage, sections[keys[0]].options)
    elif keys[0] in STAGES:
        section = stage.with_value({"name": stage})
    else:
        return root
    item = Item(key_mark=root.value[keys[0]].key_mark, node=section)
    return Node(value={**root.value, keys[0]: item}, mark=root.mark)


def _assigned(node: Node | None, keys: list[str], value: Node) -> Node:
    if not keys:
        return value
    key, *rest = keys
    if node is None or node.value is None:
        node = Node(value={}, mark=value.mark)
    if node.is_sequence:
        if not key.isdecimal() or int(key) >= len(node.value):
            raise PipelineError.at(
                value.mark, f"'{key}' is no index of a list of {len(node.value)}"
            )
        entries = list(node.value)
        entries[int(key)] = _assigned(entries[int(key)], rest, value)
        return Node(value=tuple(entries), mark=node.mark)
    if not node.is_mapping:
        raise PipelineError.at(value.mark, f"there is no '{key}' in {node.in_words()}")
    old = node.value.get(key)
    new = _assigned(None if old is None else old.node, rest, value)
    key_mark = value.mark if old is None or not rest else old.key_mark
    return Node(value={**node.value, key: Item(key_mark=key_mark, node=new)}, mark=node.mark)
