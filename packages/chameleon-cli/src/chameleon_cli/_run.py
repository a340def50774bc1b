"""``chameleon run``: tunes the model of a pipeline file, or continues an interrupted run."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click
from chameleon_core.api import (
    Interruption,
    ResolvedPipeline,
    RunFile,
    RunResult,
    TaskSource,
    load_pipeline,
    run_pipeline,
)

from chameleon_cli._options import given_again, output_option, set_option
from chameleon_cli._progress import progress_for
from chameleon_cli._result_rows import OPERATOR_HEADER, failures, operator_legend, operator_rows
from chameleon_cli._results_table import print_network, print_table
from chameleon_cli._signals import signals
from chameleon_cli._streams import results_alone


@click.command("run", epilog="Example: chameleon run pipeline.yaml --set budget.measurements=64")
@click.argument("pipeline", type=click.Path(path_type=Path))
@set_option("budget.measurements=64")
@click.option("--fresh", is_flag=True, help="Move an earlier run in the folder aside.")
@click.option("--dry-run", is_flag=True, help="List the operators that would be tuned, and stop.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
@output_option("The run folder")
def command(  # noqa: PLR0917 - click passes them by name
    pipeline: Path,
    overrides: tuple[str, ...],
    fresh: bool,
    dry_run: bool,
    as_json: bool,
    output: Path | None,
) -> None:
    """Tune the model of PIPELINE. The same command continues an interrupted run.

    Every measurement is on disk as soon as it arrives. After the first Ctrl-C, the run ends when
    the measurements that are running are done. A second Ctrl-C ends it at once.
    """
    again, overrides = given_again("run", pipeline, overrides, output)
    with results_alone():
        resolved = load_pipeline(pipeline, overrides, sharing=True)
    if dry_run:
        _dry_run(resolved, as_json=as_json)
        return
    with results_alone():
        result = _run(resolved, fresh=fresh, again=again)
    if as_json:
        if result.slower is not None:
            click.echo(result.slower, err=True)
        usage = {"usage": result.usage_here} if result.usage else {}
        click.echo(json.dumps({**result.to_json(), **usage}))
    else:
        _print(result)
    disturbance = result.disturbance
    if disturbance.disturbed or (disturbance.summary and not as_json):
        click.echo(disturbance.summary, err=disturbance.disturbed)
    for sentence in result.missed:
        click.echo(sentence, err=True)
    report = result.folder / RunFile.REPORT
    if not as_json and report.exists():
        click.echo(f"report: {report.absolute().as_uri()}")
    sys.exit(result.exit_code)


def _run(resolved: ResolvedPipeline, *, fresh: bool, again: str) -> RunResult:
    interruption = Interruption()
    progress = progress_for(sys.stderr)
    try:
        with signals(interruption, again):
            return run_pipeline(
                resolved, fresh=fresh, listeners=[progress], interruption=interruption
            )
    finally:
        progress.close()


def _print(result: RunResult) -> None:
    # This line comes first, because it matters most.
    if result.slower is not None:
        click.echo(f"{result.slower}\n")
    summary = result.summary_lines
    if summary:
        click.echo("\n".join(summary) + "\n")
    print_table(OPERATOR_HEADER, operator_rows(result.operators))
    legend = operator_legend(result.operators)
    if legend:
        click.echo(legend)
    print_network(result.network)
    if result.network.failure is not None:
        click.echo(result.network.failure, err=True)
    for operator in result.operators:
        if operator.failure is not None:
            click.echo(
                f"{operator.name}: failed {failures(operator.failed)}; {operator.failure}", err=True
            )
        for variant in operator.variants:
            if variant.failure is not None:
                click.echo(
                    f"{operator.name}: {variant.name} {variant.variant} has no time: "
                    f"{variant.failure}",
                    err=True,
                )
        # For a delivered network, the lines above say which kernels it has instead.
        if operator.config is None and not result.network.delivered:
            none = (
                "no configuration gave a valid result" if operator.measurements else "not measured"
            )
            why = f"; {operator.ended}" if operator.ended is not None else ""
            click.echo(f"{operator.name}: {none}{why}", err=True)


def _dry_run(resolved: ResolvedPipeline, *, as_json: bool) -> None:
    with results_alone():
        source = TaskSource(resolved)
        target = source.target()
        tasks = source.tasks(target)
        spaces = source.spaces(tasks)
    if as_json:
        described = [
            {"task": task.to_json(), "knobs": [k.name for k in space.knobs], "size": space.size}
            for task, space in zip(tasks, spaces, strict=True)
        ]
        click.echo(json.dumps({"run": str(resolved.output), "target": target, "tasks": described}))
        return
    rows = [
        (task.name, str(len(space.knobs)), f"{space.size:.3g}", f"{task.flop / 1e9:.3g}")
        for task, space in zip(tasks, spaces, strict=True)
    ]
    click.echo(f"target {target}, folder {resolved.output}")
    print_table(("operator", "knobs", "index vectors", "GFLOP"), rows)
