"""The very first of a run: the frontend makes sure that it will be able to deliver."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from chameleon_core.events import CheckFinished, CheckStarted
from chameleon_core.events.records import Event
from chameleon_core.loop.stages import guard_of
from chameleon_core.pipeline.schema import ResolvedPipeline
from chameleon_core.stages import Frontend
from chameleon_core.store import RecordStore

_CHECKED = "check"
"""Name of the fact in the run's store."""


def check(
    pipeline: ResolvedPipeline,
    frontend: Frontend,
    target: str,
    *,
    folder: str,
    threads: int,
    store: RecordStore,
    publish: Callable[[Event], None],
) -> dict[str, Any] | None:
    """Have a frontend refuse what it could not deliver at the run's end.

    Args:
        pipeline: the run's.
        frontend: its frontend.
        target: the resolved target.
        folder: the run folder.
        threads: that kernels are measured with.
        store: keeps what was found.
        publish: tells an event.

    Returns:
        What the frontend found, or None where there was nothing to check.

    Raises:
        ChameleonError: it cannot be delivered.
        PluginError: the frontend breaks its contract.
    """
    if getattr(type(frontend), "check", Frontend.check) is Frontend.check:
        return None
    guard = guard_of(pipeline.model)
    earlier: dict[str, Any] | None = store.fact(_CHECKED)
    if earlier is None:
        publish(CheckStarted(folder=folder))
    started = time.perf_counter()
    with guard.call("check what it is to deliver"):
        found = frontend.check(target, threads, earlier)
    if found is None:
        return None
    if not isinstance(found, dict):
        raise guard.broken(f"found a {type(found).__name__} instead of a mapping")
    if earlier is None:
        store.set_fact(_CHECKED, found)
        publish(CheckFinished(seconds=time.perf_counter() - started, found=found))
    return found
