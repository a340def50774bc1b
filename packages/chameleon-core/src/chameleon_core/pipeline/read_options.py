"""Reads options again from the JSON values that a pipeline made of them, in any process."""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from chameleon_core.pipeline.nodes import Collecting, Node, PipelineError, Problem, node_of
from chameleon_core.pipeline.stage_reader import StageReader
from chameleon_core.pipeline.structure import Structurer
from chameleon_core.plugins.registry import default_registry


def read_options(values: Mapping[str, Any], options: type, owner: str) -> Any:
    """Options from their JSON values, with the converter that read them first.

    Plugins are loaded only where an option names some: workers start with this.

    Args:
        values: as ``to_json`` wrote them.
        options: their attrs class.
        owner: what they belong to, for errors.

    Raises:
        PipelineError: with everything that is wrong.
    """
    problems: list[Problem] = []
    made = None
    with Collecting(problems):
        made = Structurer(lambda kind, node: _stage(kind, node, problems)).make(
            node_of(values, "options"), options, owner
        )
    if problems:
        raise PipelineError(problems)
    return made


def options_for(factory: Callable[..., Any], values: Mapping[str, Any]) -> Any:
    """The options that a stage's constructor is annotated with, from their JSON values.

    Args:
        factory: the stage's class.
        values: as ``to_json`` wrote them; returned as they are where it is annotated with no class.

    Raises:
        PipelineError: as for ``read_options``.
    """
    constructor = getattr(factory, "__init__") if isinstance(factory, type) else factory  # noqa: B009 - mypy
    hints = typing.get_type_hints(constructor)
    hints.pop("return", None)
    expected = next(iter(hints.values()), None)
    if isinstance(expected, type) and attrs.has(expected):
        return read_options(values, expected, expected.__name__)
    return values


def _stage(kind: str, node: Node, problems: list[Problem]) -> Any:
    return StageReader(default_registry(), problems).listed(kind, node)
