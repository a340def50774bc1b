"""What is read back from a store: tasks, and comparisons of their winners."""

from __future__ import annotations

import attrs

from chameleon_core.measurement import Measurement
from chameleon_core.spending import Spending
from chameleon_core.stages import Contender
from chameleon_core.task import Task


@attrs.frozen(kw_only=True)
class StoredTask:
    """A task with the space its records belong to.

    Attributes:
        id: the row; measurements refer to it.
        task: the task.
        space: name of the space provider.
        fingerprint: the design space's; records of another one do not apply.
        spending: seconds spent on it so far.
    """

    id: int
    task: Task
    space: str
    fingerprint: str
    spending: Spending


@attrs.frozen(kw_only=True)
class StoredComparison:
    """A final comparison.

    Attributes:
        contenders: who took part.
        measurements: one per contender, in the same order.
    """

    contenders: tuple[Contender, ...]
    measurements: tuple[Measurement, ...]
