"""The section ``fix`` of a pipeline: knobs that hold one value while the others are searched."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs

from chameleon_core.pipeline.nodes import Mark, Node, Problem


@attrs.frozen(kw_only=True)
class FixedKnob:
    """A knob that holds one value.

    Attributes:
        knob: its name.
        value: the value, as JSON.
        operator: name of the only operator that is meant; None for every one that has the knob.
        mark: where it was written.
    """

    knob: str
    value: Any
    operator: str | None = None
    mark: Mark = attrs.field(eq=False)


def fixed_knobs(node: Node | None, problems: list[Problem]) -> tuple[FixedKnob, ...]:
    """The knobs that a pipeline fixes.

    Whether operators have them is not known before their spaces are made.

    Args:
        node: the section: values by knob, or a mapping of such below an operator's name; None, or
            null, for no such section.
        problems: what is wrong is added here.
    """
    if node is None or node.value is None:
        return ()
    if not node.is_mapping:
        wrong = f"'fix' must be a mapping of knobs to values, not {node.in_words()}"
        problems.append(Problem(mark=node.mark, message=wrong))
        return ()
    found = [*_knobs(node, None)]
    for one in found:
        if one.value is None or isinstance(one.value, dict):
            wrong = f"knob '{one.knob}' is fixed to no value; write one of its values"
            problems.append(Problem(mark=one.mark, message=wrong))
    return tuple(found)


def _knobs(node: Node, operator: str | None) -> Iterator[FixedKnob]:
    for name, item in node.items():
        if item.node.is_mapping and operator is None:
            yield from _knobs(item.node, name)
        else:
            yield FixedKnob(
                knob=name, value=item.node.plain(), operator=operator, mark=item.node.mark
            )
