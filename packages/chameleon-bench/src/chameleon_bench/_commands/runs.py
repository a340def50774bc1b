"""The command ``chameleon runs``, which lists the runs below a folder."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import click
from chameleon_cli.api import duration, print_table
from chameleon_core.api import RunFile, RunView
from chameleon_core.plugin_api import ChameleonError, RunFolderError

BROKEN = "broken"
"""The state of a run folder that cannot be read."""

_SHORT = 40
"""The number of characters to which the description of a model is cut."""


@attrs.frozen(kw_only=True)
class ListedRun:
    """A run folder in the list that ``chameleon runs`` prints.

    Attributes:
        name: The path of the run folder below the listed folder.
        because: The reason if the run failed or cannot be read; otherwise empty.
        seconds: The best time of one inference of a network, or of the only operator. For several
            operators it is the sum of their best times. None if nothing has a time.
        seconds_of: The meaning of ``seconds``: ``network``, ``operator`` or ``sum``.
        at: The time of the last measurement in seconds since 1970. Without measurements, the time
            when the folder was last written.
    """

    folder: Path
    name: str
    state: str
    because: str = ""
    model: str = ""
    target: str = ""
    operators: int = 0
    measurements: int = 0
    seconds: float | None = None
    seconds_of: str = ""
    at: float | None = None

    def to_json(self) -> dict[str, Any]:
        """The attributes as JSON values."""
        values = attrs.asdict(self)
        values["run"] = str(values.pop("folder"))
        return values


def listed_runs(folder: Path) -> list[ListedRun]:
    """Find the run folders in a folder and below it, the one measured last at the end."""
    runs = [_listed(path, folder, reason) for path, reason in _run_folders(folder)]
    return sorted(runs, key=lambda run: (run.at or 0.0, run.name))


def _run_folders(folder: Path) -> Iterator[tuple[Path, str]]:
    """Run folders, and folders that cannot be read, each with the reason or an empty string."""
    denied: list[OSError] = []
    for path, inner, names in os.walk(folder, onerror=denied.append):
        is_run = RunFile.RECORDS in names or RunFile.EVENTS in names
        # A folder that --fresh moved aside is a run, too; the folder of a delivered network is not.
        hidden = {RunFile.NETWORK} if is_run else set()
        inner[:] = sorted(name for name in inner if name[0] != "." and name not in hidden)
        if is_run:
            yield Path(path), ""
    for error in denied:
        yield Path(error.filename), error.strerror or str(error)


def _listed(path: Path, folder: Path, reason: str) -> ListedRun:
    name = str(path.relative_to(folder))
    broken = ListedRun(
        folder=path.absolute(),
        name=folder.absolute().name if name == "." else name,
        state=BROKEN,
        because=reason,
        at=_written_at(path),
    )
    if reason:
        return broken
    try:
        with RunView(path) as run:
            return _described(broken, run)
    except ChameleonError as error:
        return attrs.evolve(broken, because=str(error))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        # Another program, or another version of Chameleon, may have written the rows.
        said = f"{type(error).__name__}: {error}"
        return attrs.evolve(broken, because=f"what it holds cannot be understood ({said})")


def _described(blank: ListedRun, run: RunView) -> ListedRun:
    standing, network, document = run.standing, run.network, run.document
    operators = [operator.result for operator in run.operators]
    times = [
        (operator.tuned_seconds or operator.search_seconds, int(operator.task.get("weight", 1)))
        for operator in operators
        if not operator.task.get("alternative_of")
    ]
    total = sum(seconds * weight for seconds, weight in times if seconds is not None) or None
    of = "operator" if len(times) == 1 else "sum"
    if network is not None and network.result.latency_seconds is not None:
        total, of = network.seconds, "network"
    elif of == "operator":
        total = times[0][0]
    return attrs.evolve(
        blank,
        state=str(standing.state),
        because=standing.because,
        model=model_in_words(document.get("model")),
        target=str(document.get("target", run.target)),
        operators=len(operators),
        measurements=run.store.measured,
        seconds=total,
        seconds_of=of if total is not None else "",
        at=run.store.last_measured_at or blank.at,
    )


def model_in_words(section: Any) -> str:
    """A short description of a pipeline's ``model`` section, for a list of runs."""
    if not isinstance(section, Mapping) or not section:
        return str(section or "")
    [(frontend, options), *_] = section.items()
    values = list(options.values()) if isinstance(options, Mapping) else [options]
    texts = [value for value in values if isinstance(value, str) and value]
    lists = [value for value in values if isinstance(value, list)]
    if texts:
        # The end of a path says more than its beginning.
        text = texts[0] if len(texts[0]) <= _SHORT else f"…{texts[0][-_SHORT:]}"
        return f"{frontend} {text}"
    return f"{frontend} ({len(lists[0])})" if lists else str(frontend)


def _written_at(path: Path) -> float | None:
    for name in (RunFile.RECORDS, RunFile.EVENTS, "."):
        try:
            return (path / name).stat().st_mtime
        except OSError:
            continue
    return None


@click.command("runs", epilog="Example: chameleon runs")
@click.argument("folder", default="runs", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(folder: Path, as_json: bool) -> None:
    """List the runs below FOLDER (by default `runs`), the last ones at the end.

    The column "best" is the time of one inference of a network or of the only operator, or the sum
    over several operators. A folder that cannot be read is listed with the reason.
    """
    if not folder.is_dir():
        raise RunFolderError(
            f"there is no folder {folder}",
            hint="Name the folder that your runs are in; a pipeline's 'output' says where that is.",
        )
    runs = listed_runs(folder)
    if as_json:
        value = {"folder": str(folder.absolute()), "runs": [run.to_json() for run in runs]}
        click.echo(json.dumps(value))
        return
    if not runs:
        click.echo(f"there are no runs below {folder}", err=True)
        return
    rows = [
        (
            run.name,
            run.state,
            run.model or "-",
            run.target or "-",
            str(run.operators),
            str(run.measurements),
            duration(run.seconds),
            run.seconds_of or "-",
            "-" if run.at is None else time.strftime("%Y-%m-%d %H:%M", time.localtime(run.at)),
        )
        for run in runs
    ]
    header = ("run", "state", "model", "target", "operators", "measured", "best", "of", "when")
    print_table(header, rows)
    for run in runs:
        if run.because:
            click.echo(f"{run.name}: {run.state}: {run.because}", err=True)
