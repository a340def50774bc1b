"""Stages that a program gives as classes or objects, as plugins of this process alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from chameleon_core._errors import ConfigError
from chameleon_core._pipeline.stage_reader import options_class
from chameleon_core._plugins.kinds import STAGE_KINDS, STAGES, Kind
from chameleon_core._plugins.records import NoOptions, PluginRecord
from chameleon_core._plugins.registry import Registry

_IN_THIS_PROCESS = tuple(key for key in STAGES if key != "space")
"""Keys of the stages that the process of the search makes. Workers also make the space."""


def with_stages(
    document: Mapping[str, Any], registry: Registry | None
) -> tuple[dict[str, Any], Registry]:
    """Replace classes and objects in a pipeline by names, and register them under these names.

    Args:
        document: keys of a pipeline. A class or object may stand for a stage, or for the ``name``
            of a stage with options.
        registry: the registry of plugins; if None, the registry of installed plugins.

    Returns:
        The pipeline as JSON values, and a registry with its stages.
    """
    registry = registry if registry is not None else Registry.default()
    named, records = dict(document), []
    for key in _IN_THIS_PROCESS:
        value = document.get(key)
        stage = value.get("name") if isinstance(value, Mapping) else value
        if not isinstance(stage, str | list | tuple | None):
            record = _record(STAGE_KINDS[STAGES[key]], stage)
            records.append((STAGES[key], record))
            options = value if isinstance(value, Mapping) else {}
            named[key] = {**options, "name": record.name}
    return named, registry.including(records) if records else registry


def _record(kind: Kind, stage: Any) -> PluginRecord:
    made = not isinstance(stage, type)
    record: PluginRecord = kind.record(
        name=(type(stage) if made else stage).__name__,
        summary="a stage that the program defines",
        factory=_once(stage) if made else stage,
        options=NoOptions if made else options_class(stage) or NoOptions,
    )
    return record


def _once(stage: Any) -> Callable[..., Any]:
    """A factory that returns an object, which has the state of one search, a single time."""
    objects = [stage]

    def factory(*_: Any) -> Any:
        if not objects:
            raise ConfigError(
                f"one object of {type(stage).__name__} cannot serve several operators",
                hint="give the class, of which Chameleon makes an object for each operator",
            )
        return objects.pop()

    return factory
