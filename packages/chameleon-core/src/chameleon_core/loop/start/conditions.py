"""Under which conditions a run measures: what its records may be shared by."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import structlog

from chameleon_core.loop.end.kept_records import CONDITIONS, MIXED
from chameleon_core.loop.round.measure import CheckedRunner
from chameleon_core.pipeline.schema import ResolvedPipeline
from chameleon_core.store import RecordStore
from chameleon_core.versions import versions

log = structlog.get_logger()


def noted_conditions(
    pipeline: ResolvedPipeline, store: RecordStore, runner: CheckedRunner
) -> Mapping[str, Any] | None:
    """What the times of a run depend on, kept in its store as it begins.

    Args:
        pipeline: the run's.
        store: its store.
        runner: its runner, started.

    Returns:
        ``RecordKey.conditions``; None where the runner's measurements are nobody else's, or where
        the folder has some that were made under other conditions.
    """
    own = runner.conditions()
    if own is None:
        if pipeline.records:
            log.info("what this runner measures is shared with no record database")
        return None
    # A release may make other kernels of the same choices.
    brought = versions({pipeline.space.distribution} - {""})
    conditions = {**own, "versions": {**own.get("versions", {}), **brought}}
    before = store.fact(CONDITIONS)
    same = json.loads(json.dumps(conditions)) == before
    if before is None and not store.measured:
        store.set_fact(CONDITIONS, conditions)
    elif not same:
        store.set_fact(CONDITIONS, MIXED)
        if pipeline.records:
            log.warning(
                "the folder has measurements of other versions or conditions, or of a version "
                "that did not note them; nothing in it is shared through record databases"
            )
        return None
    return conditions


__all__ = ["noted_conditions"]
