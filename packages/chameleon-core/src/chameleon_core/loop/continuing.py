"""What is said where a run goes on with something else than it began with."""

from __future__ import annotations

import structlog

from chameleon_core.loop.measuring import LazyRunner
from chameleon_core.pipeline.schema import ResolvedPipeline
from chameleon_core.store import RecordStore, StoredTask
from chameleon_core.task import Task
from chameleon_core.versions import Versions, changes, distributions_of, imported, versions

log = structlog.get_logger()

_VERSIONS = "versions"
"""Name of the fact in the run's store."""


def record_versions(
    pipeline: ResolvedPipeline, runner: LazyRunner, store: RecordStore, *, at_end: bool = False
) -> Versions:
    """Keep the versions of what took part until now, and say which ones have changed.

    Args:
        pipeline: the run's.
        runner: the run's, which knows what its workers and devices have.
        store: the run's records.
        at_end: whether what was imported is looked up as well: stages import libraries when they
            need them, and looking takes half a second, which nobody should wait for at the start.
    """
    kept: Versions = store.fact(_VERSIONS) or {}
    described = runner.get().describe().get("versions")
    own = distributions_of(pipeline)
    others = {*kept, *(imported() if at_end else ())}.difference(own)
    # What took part before and is installed no more took part all the same.
    found = {name: one for name, one in versions(sorted(others)).items() if one is not None}
    now = {**(described if isinstance(described, dict) else {}), **found, **versions(own)}
    changed = changes(kept, now)
    if changed:
        log.warning(
            "the run is continued with other versions than it was begun with; it may "
            "propose and measure otherwise than it would have",
            versions=changed,
        )
    took_part = {**kept, **now}
    store.set_fact(_VERSIONS, took_part)
    return took_part


def say_what_does_not_apply(stored: StoredTask, store: RecordStore) -> None:
    """Say that a task has records of another design space, which are not this one's.

    Args:
        stored: the task's row for its present space.
        store: the run's records.
    """
    count = sum(
        len(store.measurements(other.id))
        for other in store.tasks()
        if (other.task.key, other.space) == (stored.task.key, stored.space)
        and other.fingerprint != stored.fingerprint
    )
    if count:
        log.warning(
            "the design space of this operator is another than that of earlier measurements in "
            "this folder, as with another version of its plugin; they are kept and do not "
            "count, and the operator is tuned anew",
            task=stored.task.name,
            measurements=count,
        )


def say_what_is_left_over(task: Task, count: int, known: int, ended: str | None) -> None:
    """Say that a task has earlier measurements which its search did not come to this time.

    Args:
        task: the task.
        count: such measurements.
        known: all measurements of the task.
        ended: why it ended; None where it goes on, with other proposals than before.
    """
    if ended is None:
        log.warning(
            "the search proposes other configurations than it did before; "
            "the earlier measurements are kept",
            task=task.name,
            measurements=count,
        )
    else:
        log.warning(
            "more was measured before than this run goes through; all of it counts",
            task=task.name,
            measurements=known,
            ended=ended,
        )


__all__ = ["record_versions", "say_what_does_not_apply", "say_what_is_left_over"]
