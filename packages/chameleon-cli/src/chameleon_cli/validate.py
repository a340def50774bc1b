"""``chameleon validate``: check a pipeline and print what it expands to."""

from __future__ import annotations

import json

import click
from chameleon_core.pipeline import dump_pipeline, load_pipeline

from chameleon_cli.options import set_option
from chameleon_cli.streams import results_alone


@click.command("validate")
@click.argument("pipeline", type=click.Path())
@set_option("budget.measurements=64")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(pipeline: str, overrides: tuple[str, ...], as_json: bool) -> None:
    """Check PIPELINE and print it with presets expanded and every default written out."""
    with results_alone():
        resolved = load_pipeline(pipeline, overrides)
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
