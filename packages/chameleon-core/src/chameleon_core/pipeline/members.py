"""Stages that the options of another stage name, such as the members of a portfolio."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs

from chameleon_core.pipeline.schema import StageSpec
from chameleon_core.plugins.registry import default_registry


def with_members(options: Any, choose: Callable[[str, str], StageSpec]) -> Any:
    """Options in which names of stages are stages, chosen like all others of the run.

    A pipeline's own entry is a stage already; names alone come from the defaults of options.

    Args:
        options: of one stage.
        choose: makes the stage of a kind and a name, with its defaults.
    """
    chosen = {
        field.alias: tuple(
            attrs.evolve(choose(field.metadata["stages"], member), by_default=True)
            if isinstance(member, str)
            else member
            for member in getattr(options, field.name)
        )
        for field in attrs.fields(type(options))
        if "stages" in field.metadata
    }
    return attrs.evolve(options, **chosen)


def create_member(kind: str, member: StageSpec | str, context: Any) -> Any:
    """Make a stage that another stage's options name.

    Args:
        kind: a key of ``STAGE_KINDS``.
        member: as a pipeline chose it among its run's plugins. A name alone, in options that were
            made without a pipeline, means the installed one with its defaults.
        context: as for ``StageSpec.create``.

    Raises:
        PluginError: it is unknown, or cannot be imported or made.
    """
    if isinstance(member, str):
        return default_registry().create(kind, member, context=context)
    return member.create(context)
