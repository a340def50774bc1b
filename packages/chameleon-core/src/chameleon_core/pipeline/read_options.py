"""Reads options again from the JSON values that a pipeline made of them, in any process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from chameleon_core.pipeline.nodes import Collecting, Node, PipelineError, Problem, node_of
from chameleon_core.pipeline.structure import Structurer


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


def _stage(kind: str, node: Node, problems: list[Problem]) -> Any:
    from chameleon_core.pipeline.stage_reader import StageReader  # noqa: PLC0415 - see above
    from chameleon_core.plugins.registry import default_registry  # noqa: PLC0415

    return StageReader(default_registry(), problems).listed(kind, node)
