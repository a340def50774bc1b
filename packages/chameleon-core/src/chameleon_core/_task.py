"""A task: one tensor operator on one target, as plain data."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

import attrs

_LONGEST_NAME = 60
"""Largest number of letters of a task's name in the name of its folder."""


@attrs.frozen(kw_only=True)
class Task:
    """One tensor operator to tune.

    A task is data, not code: ``operator`` and ``arguments`` are JSON values. The package that
    registers the operator rebuilds it from these values, in any process and at any later time.

    Attributes:
        name: the name of the task in messages, unique within a run.
        operator: the kind of the operator, such as ``conv2d`` or ``primfunc``.
        arguments: JSON values that define the operator completely (shapes, layouts, dtypes).
        target: the resolved target in canonical form. Records apply only to the same target.
        flop: the number of floating-point operations of one execution. It counts the operator's
            mathematical definition (for a convolution, the direct algorithm), so that GFLOP/s of
            all algorithms can be compared.
        weight: how often the operator occurs in the network.
        location: the place of a file that the arguments name by its digest, such as a recorded
            table. Empty for tasks without such a file. The place is not part of the task's
            identity, so the file may be moved.
        alternative_of: for an alternative (a task that computes an operator in another dtype than
            the network's), the name of the task that it would replace. Empty for other tasks.
            Alternatives have a separate share of the budget.
        cold_bytes: the bytes of the weights that the network reads between two executions; 0 if
            the operator is in no network. They are not part of the task's identity.
    """

    name: str
    operator: str
    arguments: Mapping[str, Any]
    target: str
    flop: float
    weight: int = 1
    location: str = ""
    alternative_of: str = ""
    cold_bytes: int = 0

    @property
    def key(self) -> str:
        """A digest of operator, arguments and target. Tasks with the same key are the same work."""
        text = json.dumps([self.operator, self.arguments, self.target], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:24]

    @property
    def folder_name(self) -> str:
        """A name for a folder with files about the task, unique within a run."""
        name = re.sub(r"[^\w.-]+", "_", self.name)[:_LONGEST_NAME]
        return f"{name}-{self.key[:8]}"

    def to_json(self) -> dict[str, Any]:
        """The task as JSON values. ``Task(**value)`` makes the task again."""
        values = {**attrs.asdict(self, recurse=False), "arguments": dict(self.arguments)}
        return {
            name: value
            for name, value in values.items()
            if value or name not in {"alternative_of", "cold_bytes"}
        }
