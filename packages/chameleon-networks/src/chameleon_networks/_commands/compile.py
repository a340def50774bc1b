"""``chameleon compile``: delivers the network of a run from stored measurements, without tuning."""

from __future__ import annotations

from pathlib import Path

import click
from chameleon_cli.api import trust_option


@click.command("compile", epilog="Example: chameleon compile runs/net -o network")
@click.argument("folder", metavar="RUN", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    help="The folder for the network, instead of RUN/network.",
)
@click.option(
    "--max-error",
    type=click.FloatRange(min=0.0, min_open=True),
    help="The largest error, in place of precision.max_error of the pipeline.",
)
@click.option("--fresh", is_flag=True, help="Read the model anew if its files have changed.")
@trust_option
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
def command(
    folder: Path,
    *,
    output: Path | None,
    max_error: float | None,
    fresh: bool,
    trust_source: bool,
    as_json: bool,
) -> None:
    """Compile, verify and time the network of folder RUN with its best measured kernels.

    Nothing is tuned. Operators that were never measured get the first guess of their design space.
    If the model, `calibrate` or `metric` of the run is your own Python code, --trust-source is
    needed.
    """
    from chameleon_networks._commands.compiling import compile_run, show  # noqa: PLC0415 - --help is quick

    result, verified = compile_run(
        folder, output, max_error, fresh=fresh, trust_source=trust_source
    )
    show(folder, result, as_json=as_json, verified=verified)
