"""The implementation of ``chameleon compile``."""

from __future__ import annotations

import json
from pathlib import Path

import click
from chameleon_cli.api import print_network, results_alone
from chameleon_core.api import NetworkResult, RunFile, RunView
from chameleon_core.plugin_api import ChameleonError, Delivery, ExitCode

from chameleon_networks._commands import runs


def compile_run(
    folder: Path, output: Path | None, max_error: float | None, *, fresh: bool, trust_source: bool
) -> tuple[NetworkResult, bool]:
    """Compile the network of a run again, without tuning, and say if it must be verified."""
    with results_alone(), RunView(folder) as run:
        pipeline = run.model_choice(trust_source=trust_source)
        if max_error is not None:
            pipeline = runs.with_max_error(pipeline, max_error)
        require = run.document.get("require") or {}
        result = runs.network_of(pipeline, run, fresh=fresh).deliver(
            Delivery(
                target=run.target,
                winners=(*run.winners, *run.guesses(pipeline)),
                space=pipeline.space.create(),
                folder=(output or folder / RunFile.NETWORK).absolute(),
                threads=runs.threads_of(run),
                measures=run.document.get("budget", {}).get("measurements") != 0,
                recorded=run.recorded,
            )
        )
        return result, bool(require.get("verified"))


def show(folder: Path, result: NetworkResult, *, as_json: bool, verified: bool) -> None:
    """Print the result of ``chameleon compile``; exit with an error if it is not as required."""
    if as_json:
        click.echo(json.dumps({"run": str(folder.absolute()), "network": result.to_json()}))
    else:
        behind = result.slower()
        if behind is not None:
            click.echo(behind)
        print_network(result)
    if result.failure is not None:
        error = ChameleonError(result.failure, hint="See the log above for the reason.")
        click.echo(str(error), err=True)
        raise SystemExit(ExitCode.NO_VALID_RESULT)
    if verified and result.unverified is not None:
        raise SystemExit(ExitCode.THRESHOLD_MISSED)
