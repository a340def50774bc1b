"""Runs compared with each other, as JSON values: their times, and what else differs."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from chameleon_core.errors import ChameleonError, ConfigError, ExitCode
from chameleon_core.pipeline.binding import flat
from chameleon_core.run_view import NetworkSummary, OperatorTime, RunState, RunView, ViewedOperator
from chameleon_core.task import Task
from numpy.typing import NDArray

from chameleon_bench.statistics.contrasts import geometric_ratio, holm, paired_p
from chameleon_bench.statistics.estimates import estimate, finite, interval, resampled_medians

_DIGITS = 24
"""Characters of the digest: as many as a task's key has."""


@attrs.frozen(kw_only=True, eq=False)
class ComparedOperator:
    """One operator of a run.

    Attributes:
        name: its name there.
        weight: how often it occurs in the network.
        time: of its best configuration, with what took it; None if nothing has a time.
        costs: of every measurement in seconds, infinity for failures, in order of arrival,
            shape (n,).
        seconds: wall-clock that tuning it took.
        kind: the operator's.
        arguments: what else it computes; with the kind, as its task has them.
    """

    name: str
    weight: int
    time: OperatorTime | None
    costs: NDArray[np.float64]
    seconds: float
    kind: str = ""
    arguments: Mapping[str, Any] = attrs.field(factory=dict)

    @property
    def repeats(self) -> tuple[float, ...]:
        """The repeats that its time is the median of, in seconds; empty if it has none."""
        return () if self.time is None else self.time.measurement.seconds

    @property
    def median(self) -> float:
        """Its time in seconds; infinity if it has none."""
        return math.inf if self.time is None else self.time.seconds

    def measurements_to(self, seconds: float) -> int | None:
        """Measurements until one was as fast; None if none was."""
        there = np.flatnonzero(self.costs <= seconds)
        return int(there[0]) + 1 if len(there) and math.isfinite(seconds) else None


@attrs.frozen(kw_only=True, eq=False)
class ComparedRun:
    """One run.

    Attributes:
        folder: where it is, absolute.
        name: what it is called beside the others.
        state: how far it is.
        operators: by what they compute, whatever the target; see ``computed``.
        network: what is known of its network, or None if the model is none.
        measurements: configurations measured, failures included.
        seconds: wall-clock of all its processes.
        document: the pipeline with every default written out; empty if the folder has none.
        target: the resolved target, or empty.
        environment: what the runner says of itself, without versions.
        versions: of the distributions that took part.
    """

    folder: Path
    name: str
    state: RunState
    operators: Mapping[str, ComparedOperator]
    network: NetworkSummary | None
    measurements: int
    seconds: float
    document: Mapping[str, Any]
    target: str
    environment: Mapping[str, Any]
    versions: Mapping[str, str | None]

    @property
    def latency(self) -> float | None:
        """One inference of the delivered network in seconds; None if it was not timed."""
        return None if self.network is None else self.network.result.latency_seconds


def read_run(folder: Path, name: str) -> ComparedRun:
    """Read what is compared of a run folder, even while it is being written.

    Args:
        folder: the run's.
        name: what to call it.

    Raises:
        RunFolderError: there is no run in it, or its records cannot be read.
    """
    with RunView(folder) as run:
        environment = run.runner
        environment.pop("versions", None)
        return ComparedRun(
            folder=run.folder,
            name=name,
            state=run.standing.state,
            # Of several operators with other spaces the one added last.
            operators={computed(each.stored.task): _operator(each) for each in run.operators},
            network=run.network,
            measurements=run.store.measured,
            seconds=run.seconds,
            document=run.document,
            target=run.target,
            environment=environment,
            versions=run.versions,
        )


def computed(task: Task) -> str:
    """Identity of what an operator computes: a digest of its kind and arguments, of no target."""
    text = json.dumps([task.operator, task.arguments], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


def _operator(operator: ViewedOperator) -> ComparedOperator:
    task = operator.stored.task
    return ComparedOperator(
        name=operator.result.name,
        weight=task.weight,
        time=operator.time,
        costs=np.array([measured.cost for measured in operator.measurements], np.float64),
        seconds=operator.result.spending.total,
        kind=task.operator,
        arguments=task.arguments,
    )


_NAMED = 4
"""Operators of each run that are named if two runs have none in common."""


class NoTimesError(ChameleonError):
    """A run has no time that could be compared."""

    exit_code = ExitCode.NO_VALID_RESULT


def comparison_of(folders: Sequence[Path]) -> dict[str, Any]:
    """Compare runs.

    Args:
        folders: of two runs or more, finished or not.

    Returns:
        ``runs``; ``operators`` that several of them tune, with the time in each; ``sum`` of those
        that all tune; ``pairs`` of runs with ratios and tests. The differences are in ``pipeline``,
        ``versions``, ``environment`` and ``machines_differ``.

    Raises:
        ConfigError: one run is named twice, or two have nothing in common.
        NoTimesError: a run has no time.
        RunFolderError: a folder is no run.
    """
    _all_different(folders)
    runs = [read_run(folder, name) for folder, name in zip(folders, names_of(folders), strict=True)]
    for run in runs:
        _has_times(run)
    for first, other in itertools.combinations(runs, 2):
        _have_something_in_common(first, other)
    everywhere = shared(runs)
    # One network's counts for all: layouts apart, it is the same network.
    weights = {key: runs[0].operators[key].weight for key in everywhere}
    return {
        "runs": list(map(_run, runs)),
        "operators": _operators(runs),
        "sum": {
            "operators": len(everywhere),
            "times": {run.name: sum_json(run, weights) for run in runs},
        },
        "pairs": pairs_json(runs),
        "pipeline": _by_run(runs, pipeline_differences(runs)),
        "versions": _by_run(runs, version_differences(runs)),
        "environment": _by_run(runs, environment_differences(runs)),
        "machines_differ": machines_differ(runs),
    }


def names_of(folders: Sequence[Path]) -> list[str]:
    """The names of folders beside each other: their last parts, as many as tell them apart.

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
    for first, other in itertools.combinations(folders, 2):
        if first.resolve() == other.resolve():
            raise ConfigError(
                f"{first} and {other} are the same run, which cannot be compared with itself",
                hint="Name two run folders; `chameleon runs` lists them.",
            )


def _has_times(run: ComparedRun) -> None:
    if any(row.time is not None for row in run.operators.values()) or run.latency is not None:
        return
    if run.measurements:
        why = f"none of its {run.measurements} measurements is valid"
    else:
        why = "nothing was measured in it yet"
    raise NoTimesError(
        f"{run.folder} has no time to compare: it is {run.state}, and {why}",
        hint=f"`chameleon status {run.folder}` says how far it is and what failed.",
    )


def _have_something_in_common(first: ComparedRun, other: ComparedRun) -> None:
    if shared([first, other]) or _same_network(first, other):
        return
    differences = [
        f"{run.name} tunes {_some([operator.name for operator in run.operators.values()])}"
        for run in (first, other)
    ]
    raise ConfigError(
        f"{first.folder} and {other.folder} have no operator in common: {' and '.join(differences)}"
        f"{_same_names(first, other)}",
        hint="Operators are the same if their kinds and all their arguments are; name runs of "
        "one model.",
    )


def _same_names(ours: ComparedRun, other: ComparedRun) -> str:
    """Differences of the first operators that have one name in both runs, as a further clause."""
    first, second = ({each.name: each for each in run.operators.values()} for run in (ours, other))
    name = next((name for name in first if name in second), None)
    if name is None:
        return ""
    sides = [{"operator": each.kind, **each.arguments} for each in (first[name], second[name])]
    keys = [key for key in sides[0] | sides[1] if sides[0].get(key) != sides[1].get(key)]
    differences = [
        f"its {key} is {sides[0].get(key)} in {ours.name} and {sides[1].get(key)} in {other.name}"
        for key in keys[:_NAMED]
    ]
    return f"; {name} is another one: {', '.join(differences)}" if differences else ""


def _same_network(first: ComparedRun, other: ComparedRun) -> bool:
    """Whether both timed a network made of the same section ``model``."""
    models = [run.document.get("model") for run in (first, other)]
    return None not in {first.latency, other.latency} and models[0] == models[1]


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
    by_key: dict[str, dict[str, ComparedOperator]] = {}
    for run in runs:
        for key, operator in run.operators.items():
            by_key.setdefault(key, {})[run.name] = operator
    return [
        {
            "name": next(iter(tuned.values())).name,
            "times": {name: time_json(operator) for name, operator in tuned.items()},
        }
        for tuned in by_key.values()
        if len(tuned) > 1
    ]


def _by_run(runs: Sequence[ComparedRun], rows: dict[str, list[Any]]) -> dict[str, dict[str, Any]]:
    names = [run.name for run in runs]
    return {key: dict(zip(names, values, strict=True)) for key, values in rows.items()}


def shared(runs: Sequence[ComparedRun]) -> list[str]:
    """The operators that all runs tune, in the order of the first."""
    first, *others = runs
    return [key for key in first.operators if all(key in other.operators for other in others)]


def time_json(operator: ComparedOperator) -> dict[str, Any]:
    """The time of one operator in one run, and what it took to find it."""
    repeats = operator.repeats
    ends = estimate(repeats).to_json() if repeats else {"low": None, "high": None}
    return {
        "name": operator.name,
        "seconds": finite(operator.median),
        "low": ends["low"],
        "high": ends["high"],
        "repeats": len(repeats),
        "seconds_from": None if operator.time is None else str(operator.time.source),
        "measurements": len(operator.costs),
        "wall_seconds": operator.seconds,
    }


def pairs_json(runs: Sequence[ComparedRun]) -> list[dict[str, Any]]:
    """Every two runs over what both tune; p values are adjusted for the number of pairs by Holm.

    The test is Wilcoxon's signed-rank test over operators, of the logarithms of their times: one
    operator counts as much as another, however long it takes.

    Args:
        runs: the runs.
    """
    rows = [_pair(first, other) for first, other in itertools.combinations(runs, 2)]
    for row, adjusted in zip(rows, holm([row["p"] for row in rows]), strict=True):
        row["p_holm"] = adjusted
    return rows


def sum_json(run: ComparedRun, weights: Mapping[str, int]) -> dict[str, Any]:
    """The sum of a run's times over some operators with its interval.

    Args:
        run: the run.
        weights: how often each operator counts, by what it computes.
    """
    operators = [run.operators[key] for key in weights]
    counts = list(weights.values())
    total = sum(count * operator.median for count, operator in zip(counts, operators, strict=True))
    low, high = math.nan, math.nan
    if operators and all(len(operator.repeats) > 1 for operator in operators):
        rng = np.random.default_rng(0)
        drawn = sum(
            count * resampled_medians(np.asarray(operator.repeats), rng)
            for count, operator in zip(counts, operators, strict=True)
        )
        low, high = interval(np.asarray(drawn))
    return {"seconds": finite(total), "low": finite(low), "high": finite(high)}


def _pair(first: ComparedRun, second: ComparedRun) -> dict[str, Any]:
    keys = shared([first, second])
    both = [(first.operators[key], second.operators[key]) for key in keys]
    latencies = first.latency, second.latency
    # The logarithm of infinity, which says that there is no time, is infinity.
    p = paired_p(*([math.log(pair[side].median) for pair in both] for side in (0, 1)))
    return {
        "first": first.name,
        "second": second.name,
        "operators": [
            {"name": row.name, **_ratio({row.name: (row, other)}), **_needed(row, other)}
            for row, other in both
        ],
        **_ratio({operator.name: (operator, other) for operator, other in both}),
        "network": latencies[0] / latencies[1] if latencies[0] and latencies[1] else None,
        "same_model": first.document.get("model") == second.document.get("model"),
        "p": p,
        "least_p": None if p is None else 2.0 ** (1 - len(both)),
        "mixed_sources": [operator.name for operator, other in both if _mixed(operator, other)],
    }


def _mixed(operator: ComparedOperator, other: ComparedOperator) -> bool:
    """Whether one time is of a search and the other of a comparison."""
    sources = {side.time.source for side in (operator, other) if side.time is not None}
    return len(sources) > 1


def _ratio(pairs: dict[str, tuple[ComparedOperator, ComparedOperator]]) -> dict[str, Any]:
    """First over second, so that more than 1 says that the second run is faster."""
    repeats = {name: (first.repeats, other.repeats) for name, (first, other) in pairs.items()}
    return geometric_ratio(repeats, paired=False).to_json()


def _needed(first: ComparedOperator, second: ComparedOperator) -> dict[str, Any]:
    """Measurements until each was as fast as the slower of the two searches ended."""
    ends = [float(sample.costs.min(initial=math.inf)) for sample in (first, second)]
    goal = max(ends)
    return {
        "goal_seconds": finite(goal),
        "first_measurements_to_goal": first.measurements_to(goal),
        "second_measurements_to_goal": second.measurements_to(goal),
    }


NOT_SET = None
"""Value of a key that a run's pipeline does not have."""

_OWN = ("output",)
"""Keys of a pipeline that say where a run is, which is no difference between two."""

_HARDWARE = ("device", "devices", "cores", "threads")
"""Facts that runners tell of the hardware that kernels are timed on."""

_PASSING = ("state", "pace", "reason")
"""Facts of one of several devices that hold for the moment only."""


def pipeline_differences(runs: Sequence[ComparedRun]) -> dict[str, list[Any]]:
    """The keys of pipelines whose values differ, each with one value a run.

    Pipelines are compared as they are kept, with every default written out.

    Args:
        runs: the runs.

    Returns:
        By key, as in ``explorer.chains``, JSON text of each run's value, or ``NOT_SET``.
    """
    return _differing(
        [{key: value for key, value in run.document.items() if key not in _OWN} for run in runs]
    )


def version_differences(runs: Sequence[ComparedRun]) -> dict[str, list[Any]]:
    """The distributions whose versions differ among the runs that they took part in.

    Args:
        runs: the runs.
    """
    names = sorted({name for run in runs for name in run.versions})
    differences = {}
    for name in names:
        versions = [run.versions.get(name, NOT_SET) for run in runs]
        if len({version for version in versions if version is not None}) > 1:
            differences[name] = versions
    return differences


def environment_differences(runs: Sequence[ComparedRun]) -> dict[str, list[Any]]:
    """Facts of the runners that differ, the resolved target among them.

    Args:
        runs: the runs.
    """
    return _differing([{"target": run.target, **run.environment} for run in runs])


def machines_differ(runs: Sequence[ComparedRun]) -> bool:
    """Whether times were taken on different hardware, or with different threads.

    Two machines that say the same of themselves cannot be told apart.

    Args:
        runs: the runs.
    """
    said = [
        (run.target, *(_lasting(run.environment.get(key)) for key in _HARDWARE)) for run in runs
    ]
    return any(value != said[0] for value in said)


def _lasting(value: Any) -> Any:
    """The lasting facts of a device, or of several in whatever order."""
    if isinstance(value, list):
        return sorted(json.dumps(_lasting(item), sort_keys=True, default=str) for item in value)
    if isinstance(value, Mapping):
        return {key: inner for key, inner in value.items() if key not in _PASSING}
    return value


def _differing(values: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    known = [dict(flat(_opened(value))) for value in values]
    names = sorted({name for mapping in known for name in mapping})
    rows = {name: [mapping.get(name, NOT_SET) for mapping in known] for name in names}
    return {name: row for name, row in rows.items() if any(item != row[0] for item in row)}


def _opened(value: Any) -> Any:
    """JSON values with the place as the key of each mapping in a list, such as an operator."""
    if isinstance(value, list | tuple) and any(isinstance(item, Mapping) for item in value):
        value = {str(index): item for index, item in enumerate(value)}
    if isinstance(value, Mapping):
        return {key: _opened(inner) for key, inner in value.items()}
    return value
