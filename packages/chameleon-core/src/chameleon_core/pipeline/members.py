"""Stages that the options of another stage name, such as the members of a portfolio."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs

from chameleon_core.pipeline.schema import StageSpec
from chameleon_core.plugins.registry import Registry, default_registry


def with_members(
    options: Any, distribution: str, registry: Registry, choose: Callable[[str, str], StageSpec]
) -> Any:
    """Options in which names of stages are stages, chosen like all others of the run.

    What a pipeline writes is a stage already; names alone come from the defaults of options. These
    mean their own distribution's, whatever else uses them.

    Args:
        options: of one stage.
        distribution: the one that brings the stage.
        registry: the run's.
        choose: makes the stage of a kind and a name, with its defaults.
    """
    chosen: dict[str, tuple[StageSpec, ...]] = {}
    for field in attrs.fields(type(options)):
        kind = field.metadata.get("stages")
        if kind is not None:
            chosen[field.alias] = tuple(
                _by_default(member, kind, distribution, registry, choose)
                if isinstance(member, str)
                else member
                for member in getattr(options, field.name)
            )
    return attrs.evolve(options, **chosen)


def _by_default(
    name: str,
    kind: str,
    distribution: str,
    registry: Registry,
    choose: Callable[[str, str], StageSpec],
) -> StageSpec:
    owned = registry.brings(distribution, kind, name)
    made = choose(kind, f"{distribution}:{name}" if owned else name)
    return attrs.evolve(made, name=name, by_default=True)


def create_member(kind: str, member: StageSpec | str, context: Any) -> Any:
    """Make a stage that another stage's options name.

    Args:
        kind: a key of ``STAGE_KINDS``.
        member: as a pipeline chose it among its run's plugins; a name alone, in options that were
            made without a pipeline, means the installed one with its defaults.
        context: as for ``StageSpec.create``.

    Raises:
        PluginError: it is unknown, or cannot be imported or made.
    """
    if isinstance(member, str):
        return default_registry().create(kind, member, context=context)
    return member.create(context)
