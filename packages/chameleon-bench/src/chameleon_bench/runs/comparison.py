"""Runs compared with each other: what is printed, as JSON values."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from chameleon_core.errors import ChameleonError, ConfigError, ExitCode

from chameleon_bench.runs import contrasts, differences
from chameleon_bench.runs.reading import ComparedRun, read_run

_NAMED = 4
"""Operators of each run that are named where two runs have none in common."""


class NoTimesError(ChameleonError):
    """A run has no time that could be compared."""

    exit_code = ExitCode.NO_VALID_RESULT


def comparison_of(folders: Sequence[Path]) -> dict[str, Any]:
    """Compare runs.

    Args:
        folders: of two runs or more, finished or not.

    Returns:
        ``runs``; ``operators`` that several of them tune, with the time in each; ``sum`` of those
        that all of them tune; ``pairs`` of runs with ratios and tests; what differs in
        ``pipeline``, ``versions`` and ``environment``; ``machines_differ``.

    Raises:
        ConfigError: one run is named twice, or two have nothing in common.
        NoTimesError: a run has no time.
        RunFolderError: a folder is no run.
    """
    _all_different(folders)
    runs = [read_run(folder, name) for folder, name in zip(folders, names_of(folders), strict=True)]
    for run in runs:
        _has_times(run)
    for one, other in itertools.combinations(runs, 2):
        _have_something_in_common(one, other)
    everywhere = contrasts.shared(runs)
    # One network's counts for all: layouts apart, it is the same network.
    weights = {key: runs[0].operators[key].weight for key in everywhere}
    return {
        "runs": [_run(one) for one in runs],
        "operators": _operators(runs),
        "sum": {
            "operators": len(everywhere),
            "times": {one.name: contrasts.sum_json(one, weights) for one in runs},
        },
        "pairs": contrasts.pairs_json(runs),
        "pipeline": _by_run(runs, differences.pipeline_differences(runs)),
        "versions": _by_run(runs, differences.version_differences(runs)),
        "environment": _by_run(runs, differences.environment_differences(runs)),
        "machines_differ": differences.machines_differ(runs),
    }


def names_of(folders: Sequence[Path]) -> list[str]:
    """What folders are called beside each other: their last parts, as many as tell them apart.

    Args:
        folders: all different.
    """
    paths = [Path(os.path.abspath(folder)) for folder in folders]  # noqa: PTH100 - links stay
    for count in range(1, max(len(path.parts) for path in paths) + 1):
        names = [str(Path(*path.parts[-count:])) for path in paths]
        if len(set(names)) == len(names):
            return names
    return [str(path) for path in paths]


def _all_different(folders: Sequence[Path]) -> None:
    for one, other in itertools.combinations(folders, 2):
        if one.resolve() == other.resolve():
            raise ConfigError(
                f"{one} and {other} are the same run, which cannot be compared with itself",
                hint="Name two run folders; `chameleon runs` lists them.",
            )


def _has_times(run: ComparedRun) -> None:
    if any(one.time is not None for one in run.operators.values()) or run.latency is not None:
        return
    if run.measurements:
        why = f"none of its {run.measurements} measurements is valid"
    else:
        why = "nothing was measured in it yet"
    raise NoTimesError(
        f"{run.folder} has no time to compare: it is {run.state}, and {why}",
        hint=f"`chameleon status {run.folder}` says how far it is and what failed.",
    )


def _have_something_in_common(one: ComparedRun, other: ComparedRun) -> None:
    if contrasts.shared([one, other]) or _same_network(one, other):
        return
    told = [
        f"{run.name} tunes {_some([operator.name for operator in run.operators.values()])}"
        for run in (one, other)
    ]
    raise ConfigError(
        f"{one.folder} and {other.folder} have no operator in common: {' and '.join(told)}"
        f"{_same_names(one, other)}",
        hint="Operators are the same where their kinds and all their arguments are; name runs of "
        "one model.",
    )


def _same_names(one: ComparedRun, other: ComparedRun) -> str:
    """What differs of the first operators that have one name in both runs, as a further clause."""
    first, second = ({each.name: each for each in run.operators.values()} for run in (one, other))
    name = next((name for name in first if name in second), None)
    if name is None:
        return ""
    sides = [{"operator": each.kind, **each.arguments} for each in (first[name], second[name])]
    keys = [key for key in sides[0] | sides[1] if sides[0].get(key) != sides[1].get(key)]
    told = [
        f"its {key} is {sides[0].get(key)} in {one.name} and {sides[1].get(key)} in {other.name}"
        for key in keys[:_NAMED]
    ]
    return f"; {name} is another one: {', '.join(told)}" if told else ""


def _same_network(one: ComparedRun, other: ComparedRun) -> bool:
    """Whether both timed a network made of the same section ``model``."""
    models = [run.document.get("model") for run in (one, other)]
    return None not in {one.latency, other.latency} and models[0] == models[1]


def _some(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _run(run: ComparedRun) -> dict[str, Any]:
    network = run.network
    return {
        "name": run.name,
        "run": str(run.folder),
        "state": str(run.state),
        "target": run.target,
        "measurements": run.measurements,
        "seconds": run.seconds,
        "network": None
        if network is None
        else {"seconds": network.seconds, "seconds_from": str(network.source)},
    }


def _operators(runs: Sequence[ComparedRun]) -> list[dict[str, Any]]:
    """Operators that two runs or more tune, in the order of the first that does."""
    keys = dict.fromkeys(key for run in runs for key in run.operators)
    found = []
    for key in keys:
        tuning = [run for run in runs if key in run.operators]
        if len(tuning) > 1:
            times = {run.name: contrasts.time_json(run.operators[key]) for run in tuning}
            found.append({"name": tuning[0].operators[key].name, "times": times})
    return found


def _by_run(runs: Sequence[ComparedRun], found: dict[str, list[Any]]) -> dict[str, dict[str, Any]]:
    names = [one.name for one in runs]
    return {key: dict(zip(names, values, strict=True)) for key, values in found.items()}
