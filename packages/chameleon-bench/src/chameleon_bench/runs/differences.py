"""What differs between runs beside their times: pipelines, versions, and the machines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from chameleon_core.pipeline.binding import flat

from chameleon_bench.runs.reading import ComparedRun

NOT_SET = None
"""Value of a key that a run's pipeline does not have."""

_OWN = ("output",)
"""Keys of a pipeline that say where a run is, which is no difference between two."""

_NO_MACHINE = ("workers", "timing", "python", "system")
"""What a runner says of itself that is not the hardware kernels ran on."""


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
        {key: value for key, value in one.environment.items() if key not in _NO_MACHINE}
        for one in runs
    ]
    return any(
        (one, run.target) != (said[0], runs[0].target) for one, run in zip(said, runs, strict=True)
    )


def _differing(values: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    known = [dict(flat(value)) for value in values]
    names = sorted({name for one in known for name in one})
    rows = {name: [one.get(name, NOT_SET) for one in known] for name in names}
    return {name: row for name, row in rows.items() if any(one != row[0] for one in row)}
