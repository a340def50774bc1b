"""``chameleon verify``: compares a delivered network with its framework on the user's inputs."""

from __future__ import annotations

from pathlib import Path

import click
from chameleon_cli.api import trust_option


@click.command("verify", epilog="Example: chameleon verify runs/net --inputs data.py:batches")
@click.argument("folder", metavar="RUN", type=click.Path(path_type=Path))
@click.option(
    "--inputs",
    metavar="FILE:FUNCTION",
    help="A function that yields batches of inputs. [default: random inputs]",
)
@trust_option
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
def command(folder: Path, *, inputs: str | None, trust_source: bool, as_json: bool) -> None:
    """Compare the delivered network of folder RUN with its framework, in this environment.

    RUN may also be the delivered folder RUN/network.

    The output shows the largest error of each network output, over the largest number of that
    output in the framework. If an error is larger than the run allows, Chameleon looks for the
    operator at which errors begin. It compiles parts of the network, and compares their results
    with the framework.

    The function of --inputs yields an array, a list with an array for each input, or a mapping by
    input name. If the model of the run is your own Python code, --trust-source is needed.
    """
    from chameleon_networks._commands.verifying import show, verified  # noqa: PLC0415 - --help is quick

    show(folder, verified(folder, inputs, trust_source=trust_source), as_json=as_json)
