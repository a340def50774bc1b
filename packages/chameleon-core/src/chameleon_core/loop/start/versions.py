"""The versions of what took part in a run, and which of them have changed since it began."""

from __future__ import annotations

import structlog

from chameleon_core.loop.round.measure import CheckedRunner
from chameleon_core.pipeline.schema import ResolvedPipeline
from chameleon_core.store import RecordStore
from chameleon_core.versions import Versions, changes, distributions_of, imported, versions

log = structlog.get_logger()

_VERSIONS = "versions"
"""Name of the fact in the run's store."""


def record_versions(
    pipeline: ResolvedPipeline, runner: CheckedRunner, store: RecordStore, *, at_end: bool = False
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
    described = runner.describe().get("versions")
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


__all__ = ["record_versions"]
