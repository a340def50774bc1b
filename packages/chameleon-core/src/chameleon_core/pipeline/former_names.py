"""Options by the names that they had before: what was once written is read for good."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from chameleon_core.pipeline.nodes import Node, Problem
from chameleon_core.plugins.options import FORMER


def former_names(options: type) -> dict[str, str]:
    """Today's name of every option of a class that had another one, by that one."""
    return {
        field.metadata[FORMER]: field.alias
        for field in attrs.fields(options)
        if FORMER in field.metadata
    }


def in_current_names(node: Node, options: type, owner: str) -> tuple[Node, list[Problem]]:
    """A section with today's names in the places of former ones, and what is wrong with those.

    Args:
        node: a mapping.
        options: the class that is made of it.
        owner: what the options belong to, for errors.
    """
    former = former_names(options)
    problems = [
        Problem(
            mark=item.key_mark,
            message=f"option '{key}' for {owner} is the former name of '{former[key]}', which is "
            "there too; remove one",
        )
        for key, item in node.items()
        if key in former and former[key] in node.value
    ]
    if not former.keys() & node.value.keys():
        return node, problems
    return Node(value=renamed(node.value, former), mark=node.mark), problems


def renamed(section: Mapping[str, Any], former: Mapping[str, str]) -> dict[str, Any]:
    """A mapping with today's names; where a former one is there as well, today's wins."""
    today = {key: value for key, value in section.items() if key not in former}
    return {former[key]: value for key, value in section.items() if key in former} | today
