"""A task: one tensor operator on one target, as plain data that any process can rebuild."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import attrs


@attrs.frozen(kw_only=True)
class Task:
    """One tensor operator to tune.

    A task is data, not code: ``operator`` and ``arguments`` are JSON values. The package that
    understands them rebuilds the operator, in a worker process or years later.

    Attributes:
        name: for people; unique within a run.
        operator: the operator's kind, such as ``conv2d`` or ``primfunc``.
        arguments: JSON values that define the operator completely (shapes, layouts, dtypes).
        target: the resolved target in canonical form; records hold for this target alone.
        flop: floating-point operations of one evaluation, counted on the mathematical
            definition (direct convolution), so that GFLOP/s of any algorithm compare.
        weight: how often the operator occurs in the network.
        location: where the data lies that the arguments name by its digest, such as a recorded
            table; empty for tasks that need none. No part of the identity: a moved file is the
            same work.
        alternative_of: name of the run's task that computes the same in the types that the network
            has anyway; empty for such a task. Alternatives have a share of the budget of their
            own.
    """

    name: str
    operator: str
    arguments: Mapping[str, Any]
    target: str
    flop: float
    weight: int = 1
    location: str = ""
    alternative_of: str = ""

    @property
    def key(self) -> str:
        """Identity of the work: a digest of operator, arguments and target, not of the name."""
        text = json.dumps([self.operator, self.arguments, self.target], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:24]

    def to_json(self) -> dict[str, Any]:
        """The task as JSON values; ``Task(**value)`` is its inverse."""
        values = {**attrs.asdict(self, recurse=False), "arguments": dict(self.arguments)}
        if not self.alternative_of:
            del values["alternative_of"]
        return values
