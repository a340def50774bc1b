"""``chameleon verify``: a delivered network against its framework, on the user's inputs."""

from __future__ import annotations

from pathlib import Path

import click
from chameleon_cli.options import trust_option


@click.command("verify", epilog="Example: chameleon verify runs/net --inputs data.py:batches")
@click.argument("folder", metavar="RUN", type=click.Path(path_type=Path))
@click.option(
    "--inputs",
    metavar="FILE:FUNCTION",
    help="A function that yields batches of inputs; random ones if none.",
)
@trust_option
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
def command(folder: Path, *, inputs: str | None, trust_source: bool, as_json: bool) -> None:
    """Compare the delivered network of folder RUN with its framework, in this environment.

    RUN may be the delivered folder RUN/network as well.

    Shown is the largest error of each output, over the largest number that the framework gives
    there. If an error is larger than the run allows, Chameleon looks for the operator at which
    errors begin. It compiles parts of the network, and compares what they give with the framework.

    The function of --inputs yields an array, a list of one per input, or a mapping by the inputs'
    names. If the model of the run is Python of yours, --trust-source is needed.
    """
    from chameleon_networks.commands.verifying import show, verified  # noqa: PLC0415 - --help is quick

    show(folder, verified(folder, inputs, trust_source=trust_source), as_json=as_json)
