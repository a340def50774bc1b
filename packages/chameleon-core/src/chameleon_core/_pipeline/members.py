"""Stages that are options of another stage, such as the members of a portfolio."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs

from chameleon_core._pipeline.schema import StageSpec


def with_members(options: Any, choose: Callable[[str, str], StageSpec]) -> Any:
    """Replace the names of stages in a stage's options by resolved stages.

    Stages that the pipeline names are resolved already. So only default values of options still
    hold names.

    Args:
        options: the options of one stage.
        choose: a function that resolves a stage from its kind and name, with default options.
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


def leaves_of(stage: StageSpec) -> list[StageSpec]:
    """The stages that work for a stage: its members of the same kind, or theirs, or else itself."""
    fields = attrs.fields(type(stage.options))
    names = [field.name for field in fields if field.metadata.get("stages") == stage.kind]
    members = [member for name in names for member in getattr(stage.options, name)]
    return [leaf for member in members for leaf in leaves_of(member)] or [stage]
