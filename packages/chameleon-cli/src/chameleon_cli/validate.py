"""``chameleon validate``: check a pipeline and print what it expands to."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click
from chameleon_core.pipeline import dump_pipeline, load_pipeline

from chameleon_cli.options import set_option
from chameleon_cli.streams import results_alone

if TYPE_CHECKING:
    from chameleon_core.pipeline import ResolvedPipeline


def _inspected(pipeline: str, overrides: tuple[str, ...]) -> ResolvedPipeline:
    # A mistake in the file is told without what an inspection needs.
    load_pipeline(pipeline, overrides)
    from chameleon_core.loop.start.inspection import inspected_pipeline  # noqa: PLC0415

    return inspected_pipeline(pipeline, overrides)


@click.command("validate")
@click.argument("pipeline", type=click.Path())
@set_option("budget.measurements=64")
@click.option(
    "--quick", is_flag=True, help="Look at the file alone: resolve no target, import nothing."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(pipeline: str, overrides: tuple[str, ...], quick: bool, as_json: bool) -> None:
    """Check PIPELINE and print it with presets expanded and every default written out.

    The target is resolved, stages are imported, and the model's source is looked for: its file, or
    the function, whose module is imported for that. Nothing is compiled.
    """
    with results_alone():
        resolved = (load_pipeline if quick else _inspected)(pipeline, overrides)
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
