"""What may not be collected: tasks of networks that are held out, and what is much like them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from chameleon_core.task import Task

from chameleon_one_shot.dataset.sampling.fields import Path, flattened, is_number

NEAR = 0.1
"""Sizes that differ by no more than this share are the same, for a task that is held out."""


class HeldOut:
    """Tasks that are held out.

    Args:
        tasks: of the networks that are held out.
    """

    def __init__(self, tasks: Iterable[Task]) -> None:
        self._numbers: dict[str, list[dict[Path, float]]] = {}
        for task in tasks:
            self._numbers.setdefault(task.operator, []).append(_numbers(task.arguments))

    def covers(self, operator: str, arguments: Mapping[str, Any]) -> bool:
        """Whether a task is one of them, or within ``NEAR`` of one in every dimension.

        Layouts, element types and epilogues make no difference.
        """
        numbers = _numbers(arguments)
        return any(_alike(numbers, other) for other in self._numbers.get(operator, ()))


def _numbers(arguments: Mapping[str, Any]) -> dict[Path, float]:
    return {path: value for path, value in flattened(arguments).items() if is_number(value)}


def _alike(one: Mapping[Path, float], other: Mapping[Path, float]) -> bool:
    return one.keys() == other.keys() and all(
        abs(value - other[path]) <= NEAR * max(abs(value), abs(other[path]))
        for path, value in one.items()
    )
