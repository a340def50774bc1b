"""``chameleon validate``: check a pipeline and print what it expands to."""

from __future__ import annotations

import json
from collections.abc import Callable

import click
from chameleon_core.pipeline.load import load_pipeline
from chameleon_core.pipeline.resolve import dump_pipeline

from chameleon_cli.options import set_option
from chameleon_cli.streams import results_alone


@click.command(
    "validate", epilog="Example: chameleon validate pipeline.yaml --set explorer=annealing"
)
@click.argument("pipeline", type=click.Path())
@set_option("budget.measurements=64")
@click.option(
    "--quick", is_flag=True, help="Look at the file alone: resolve no target, import nothing."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def command(
    start_logs: Callable[[], None],
    pipeline: str,
    overrides: tuple[str, ...],
    quick: bool,
    as_json: bool,
) -> None:
    """Check PIPELINE and print it with presets expanded and every default written out.

    Chameleon resolves the target, imports the stages, and tries the model as a run does before it
    measures. It reads a network, compiles it without tuning, and compares it once with its
    framework.
    """
    with results_alone():
        resolved = load_pipeline(pipeline, overrides)
        if not quick:
            start_logs()
            # Imported here, with NumPy: a mistake in the file is told without.
            from chameleon_cli.inspection import inspect_pipeline  # noqa: PLC0415

            inspect_pipeline(resolved, pipeline, overrides)
    if as_json:
        click.echo(
            json.dumps(
                {
                    "preset": resolved.preset,
                    "digest": resolved.digest,
                    "pipeline": dict(resolved.document),
                },
                indent=2,
            )
        )
    else:
        click.echo(dump_pipeline(resolved), nl=False)
