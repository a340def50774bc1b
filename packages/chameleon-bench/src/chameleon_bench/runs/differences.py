"""What differs between runs beside their times: pipelines, versions, and the machines."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from chameleon_core.pipeline.binding import flat

from chameleon_bench.runs.reading import ComparedRun

NOT_SET = None
"""Value of a key that a run's pipeline does not have."""

_OWN = ("output",)
"""Keys of a pipeline that say where a run is, which is no difference between two."""

_HARDWARE = ("device", "devices", "cores", "threads")
"""What runners say of the hardware that kernels are timed on."""

_PASSING = ("state", "pace", "reason")
"""What runners of several devices say of one that holds for the moment."""


def pipeline_differences(runs: Sequence[ComparedRun]) -> dict[str, list[Any]]:
    """The keys of pipelines whose values differ, each with one value a run.

    Pipelines are compared as they are kept, with every default written out.

    Args:
        runs: the runs.

    Returns:
        By key, as in ``explorer.chains``, JSON text of each run's value, or ``NOT_SET``.
    """
    return _differing(
        [{key: value for key, value in one.document.items() if key not in _OWN} for one in runs]
    )


def version_differences(runs: Sequence[ComparedRun]) -> dict[str, list[Any]]:
    """The distributions whose versions differ among the runs that they took part in.

    Args:
        runs: the runs.
    """
    names = sorted({name for one in runs for name in one.versions})
    found = {}
    for name in names:
        versions = [one.versions.get(name, NOT_SET) for one in runs]
        if len({version for version in versions if version is not None}) > 1:
            found[name] = versions
    return found


def environment_differences(runs: Sequence[ComparedRun]) -> dict[str, list[Any]]:
    """What runners say of themselves that differs, the resolved target among it.

    Args:
        runs: the runs.
    """
    return _differing([{"target": one.target, **one.environment} for one in runs])


def machines_differ(runs: Sequence[ComparedRun]) -> bool:
    """Whether times were taken on different hardware, or with different threads.

    Two machines that say the same of themselves cannot be told apart.

    Args:
        runs: the runs.
    """
    said = [
        (one.target, *(_lasting(one.environment.get(key)) for key in _HARDWARE)) for one in runs
    ]
    return any(one != said[0] for one in said)


def _lasting(value: Any) -> Any:
    """What is said of a device, or of several in whatever order, without what passes."""
    if isinstance(value, list):
        return sorted(json.dumps(_lasting(one), sort_keys=True, default=str) for one in value)
    if isinstance(value, Mapping):
        return {key: inner for key, inner in value.items() if key not in _PASSING}
    return value


def _differing(values: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    known = [dict(flat(_opened(value))) for value in values]
    names = sorted({name for one in known for name in one})
    rows = {name: [one.get(name, NOT_SET) for one in known] for name in names}
    return {name: row for name, row in rows.items() if any(one != row[0] for one in row)}


def _opened(value: Any) -> Any:
    """JSON values with the place as the key of each mapping in a list, such as an operator."""
    if isinstance(value, list | tuple) and any(isinstance(one, Mapping) for one in value):
        value = {str(place): one for place, one in enumerate(value)}
    if isinstance(value, Mapping):
        return {key: _opened(inner) for key, inner in value.items()}
    return value
