"""Compares runs: their times, and the differences of their pipelines and machines."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import os
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from chameleon_core.api import RunView
from chameleon_core.plugin_api import ChameleonError, ConfigError, ExitCode, Task
from numpy.typing import NDArray

from chameleon_bench._statistics.contrasts import geometric_ratio, holm, paired_p
from chameleon_bench._statistics.estimates import estimate, finite, interval, resampled_medians

_DIGITS = 24
"""The number of characters of a digest, the same as in a task's key."""


@attrs.frozen(kw_only=True, eq=False)
class ComparedOperator:
    """One operator of a run, with the numbers that are compared with other runs.

    Attributes:
        weight: The number of times that the operator occurs in the network.
        repeats: The repeats (single timings) of the operator's best configuration, in seconds.
            Their median is the operator's time. There are none if it has no time.
        source: Whether the time is from the search or from the comparison at the end; empty if
            there is no time.
        costs: The cost of every measurement in seconds, infinity for failures, in order of arrival,
            shape (n,).
        seconds: The wall-clock seconds that tuning the operator took.
    """

    name: str
    weight: int
    repeats: tuple[float, ...]
    source: str
    costs: NDArray[np.float64]
    seconds: float
    kind: str = ""
    arguments: Mapping[str, Any] = attrs.field(factory=dict)

    @property
    def median(self) -> float:
        """The operator's time in seconds; infinity if it has none."""
        return statistics.median(self.repeats) if self.repeats else math.inf

    def measurements_to(self, seconds: float) -> int | None:
        """The number of measurements until a configuration was as fast as ``seconds``, or None."""
        there = np.flatnonzero(self.costs <= seconds)
        return int(there[0]) + 1 if len(there) and math.isfinite(seconds) else None


@attrs.frozen(kw_only=True, eq=False)
class ComparedRun:
    """One of the runs that ``chameleon compare`` compares.

    Attributes:
        operators: The operators, by a digest that is the same for all targets (``computed``).
        network: A summary of the network, or None if the model is no network.
        seconds: The wall-clock seconds of all processes of the run.
        document: The pipeline with all defaults; empty if the folder has none.
        versions: The version of each distribution that took part.
    """

    folder: Path
    name: str
    state: str
    operators: Mapping[str, ComparedOperator]
    network: RunView.Network | None
    measurements: int
    seconds: float
    document: Mapping[str, Any]
    target: str
    environment: Mapping[str, Any]
    versions: Mapping[str, str | None]

    @property
    def latency(self) -> float | None:
        """The time of one inference of the run's network in seconds; None if it was not timed."""
        return None if self.network is None else self.network.result.latency_seconds


def read_run(folder: Path, name: str) -> ComparedRun:
    """Read a run folder for a comparison, also while the run writes to it."""
    with RunView(folder) as run:
        environment = run.runner
        environment.pop("versions", None)
        return ComparedRun(
            folder=run.folder,
            name=name,
            state=run.standing.state,
            operators=_operators_in(run),
            network=run.network,
            measurements=run.store.measured,
            seconds=run.seconds,
            document=run.document,
            target=run.target,
            environment=environment,
            versions=run.versions,
        )


def computed(task: Task) -> str:
    """A digest of an operator's computation, to find the same operator in two runs."""
    text = json.dumps([task.operator, task.arguments], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


def _operators_in(run: RunView) -> dict[str, ComparedOperator]:
    """The operators by ``computed``; of several with other spaces, the one that was added last."""
    operators = {}
    for operator in run.operators:
        task, time = operator.stored.task, operator.time
        operators[computed(task)] = ComparedOperator(
            name=operator.result.name,
            weight=task.weight,
            repeats=() if time is None else time.measurement.seconds,
            source="" if time is None else time.source,
            costs=np.array([measured.cost for measured in operator.measurements], np.float64),
            seconds=operator.result.spending.total,
            kind=task.operator,
            arguments=task.arguments,
        )
    return operators


_NAMED = 4
"""The number of operators to name of two runs that have no operator in common."""


class NoTimesError(ChameleonError):
    """A run has no time to compare."""

    exit_code = ExitCode.NO_VALID_RESULT


def comparison_of(folders: Sequence[Path]) -> dict[str, Any]:
    """Compare runs."""
    _all_different(folders)
    runs = [read_run(folder, name) for folder, name in zip(folders, names_of(folders), strict=True)]
    for run in runs:
        _has_times(run)
    for first, other in itertools.combinations(runs, 2):
        _have_something_in_common(first, other)
    everywhere = shared(runs)
    # The counts of the first run serve all runs, because the networks differ only in their layouts.
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
    """Short distinct names of run folders: as many of a path's last parts as needed."""
    paths = [Path(os.path.abspath(folder)) for folder in folders]  # noqa: PTH100 - do not resolve links
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
    if any(row.repeats for row in run.operators.values()) or run.latency is not None:
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
    """A clause about how the first operators with the same name in both runs differ."""
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
    """Whether both runs timed a network with the same ``model`` section."""
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
    """Operators that at least two runs tune, in the order of the first of these runs."""
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
    """The digests (``computed``) of operators that all runs tune, in the first run's order."""
    first, *others = runs
    return [key for key in first.operators if all(key in other.operators for other in others)]


def time_json(operator: ComparedOperator) -> dict[str, Any]:
    """An operator's time in one run as JSON values, with its measurements and search time."""
    repeats = operator.repeats
    ends = estimate(repeats).to_json() if repeats else {"low": None, "high": None}
    return {
        "name": operator.name,
        "seconds": finite(operator.median),
        "low": ends["low"],
        "high": ends["high"],
        "repeats": len(repeats),
        "seconds_from": operator.source or None,
        "measurements": len(operator.costs),
        "wall_seconds": operator.seconds,
    }


def pairs_json(runs: Sequence[ComparedRun]) -> list[dict[str, Any]]:
    """The comparison of every two runs over the operators that both tune.

    The test is Wilcoxon's signed-rank test of the logarithms of the operators' times, so that all
    operators count the same.
    """
    rows = [_pair(first, other) for first, other in itertools.combinations(runs, 2)]
    for row, adjusted in zip(rows, holm([row["p"] for row in rows]), strict=True):
        row["p_holm"] = adjusted
    return rows


def sum_json(run: ComparedRun, weights: Mapping[str, int]) -> dict[str, Any]:
    """The sum of a run's times over the operators in ``weights``, with its 95 % interval."""
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
    """Whether one time comes from a search and the other from a final comparison."""
    sources = {side.source for side in (operator, other)} - {""}
    return len(sources) > 1


def _ratio(pairs: dict[str, tuple[ComparedOperator, ComparedOperator]]) -> dict[str, Any]:
    """The first run's times over the second run's: above 1, the second run is faster."""
    repeats = {name: (first.repeats, other.repeats) for name, (first, other) in pairs.items()}
    return geometric_ratio(repeats, paired=False).to_json()


def _needed(first: ComparedOperator, second: ComparedOperator) -> dict[str, Any]:
    """The measurements of both searches until each reached the slower search's final time."""
    ends = [float(sample.costs.min(initial=math.inf)) for sample in (first, second)]
    goal = max(ends)
    return {
        "goal_seconds": finite(goal),
        "first_measurements_to_goal": first.measurements_to(goal),
        "second_measurements_to_goal": second.measurements_to(goal),
    }


NOT_SET = None
"""The value of a key that a run's pipeline does not have."""

_OWN = ("output",)
"""Keys of a pipeline that are no differences, such as the run's folder."""

_HARDWARE = ("device", "devices", "cores", "threads")
"""Facts in a runner's description about the hardware that times kernels."""

_PASSING = ("state", "pace", "reason")
"""Facts about a device that may change during a run."""


def pipeline_differences(runs: Sequence[ComparedRun]) -> dict[str, list[Any]]:
    """The keys of pipelines whose values differ, with one value per run."""
    return _differing(
        [{key: value for key, value in run.document.items() if key not in _OWN} for run in runs]
    )


def version_differences(runs: Sequence[ComparedRun]) -> dict[str, list[Any]]:
    """The versions of distributions that differ between the runs in which they took part."""
    names = sorted({name for run in runs for name in run.versions})
    differences = {}
    for name in names:
        versions = [run.versions.get(name, NOT_SET) for run in runs]
        if len({version for version in versions if version is not None}) > 1:
            differences[name] = versions
    return differences


def environment_differences(runs: Sequence[ComparedRun]) -> dict[str, list[Any]]:
    """Facts about the machines and runners that differ between runs."""
    return _differing([{"target": run.target, **run.environment} for run in runs])


def machines_differ(runs: Sequence[ComparedRun]) -> bool:
    """Whether the runs used different hardware or different numbers of threads."""
    said = [
        (run.target, *(_lasting(run.environment.get(key)) for key in _HARDWARE)) for run in runs
    ]
    return any(value != said[0] for value in said)


def _lasting(value: Any) -> Any:
    """The lasting facts of a device; those of several devices in a fixed order."""
    if isinstance(value, list):
        return sorted(json.dumps(_lasting(item), sort_keys=True, default=str) for item in value)
    if isinstance(value, Mapping):
        return {key: inner for key, inner in value.items() if key not in _PASSING}
    return value


def _differing(values: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    known = [dict(_flat(value)) for value in values]
    names = sorted({name for mapping in known for name in mapping})
    rows = {name: [mapping.get(name, NOT_SET) for mapping in known] for name in names}
    return {name: row for name, row in rows.items() if any(item != row[0] for item in row)}


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Yield every key of nested JSON values with its value, such as ``budget.patience``.

    In a list of mappings, the index is the key.
    """
    if isinstance(value, list | tuple) and any(isinstance(item, Mapping) for item in value):
        value = {str(index): item for index, item in enumerate(value)}
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _flat(inner, f"{name}.{key}" if name else str(key))
    else:
        yield name, json.dumps(value, default=str)
