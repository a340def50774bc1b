"""``chameleon export``: writes the winners of a run as files that work without Chameleon."""

from __future__ import annotations

import json
from pathlib import Path

import click
from chameleon_cli.api import trust_option


@click.command("export", epilog="Example: chameleon export runs/net --to c -o bundle")
@click.argument("folder", metavar="RUN", type=click.Path(path_type=Path))
@click.option(
    "--to",
    "form",
    required=True,
    type=click.Choice(["metaschedule", "tvmscript", "library", "c", "wheel", "onnxruntime"]),
    help="A MetaSchedule database, functions as TVMScript, a library per operator for Python, a "
    "bundle for C, a wheel, or a file for ONNX Runtime.",
)
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="The folder for the files.",
)
@click.option("--task", "only", multiple=True, help="Only this operator. May be given again.")
@click.option("--name", help="The name of a C bundle or of a wheel. [default: the folder's name]")
@click.option(
    "--level", help="Write the kernels of this level of CPUs into a C bundle. [default: the tuned]"
)
@click.option("--version", default="0.1.0", show_default=True, help="The version of a wheel.")
@trust_option
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
def command(
    folder: Path,
    form: str,
    output: Path,
    *,
    only: tuple[str, ...],
    name: str | None,
    level: str | None,
    version: str,
    trust_source: bool,
    as_json: bool,
) -> None:
    """Write the best configurations of folder RUN for use without Chameleon.

    With `metaschedule`, the file is a database of the operators that were tuned in the `sketch`
    space. With `tvmscript`, the files are the scheduled functions of any space. With `library`,
    Python loads each operator with NumPy alone. With `c`, a bundle of the network or of an operator
    needs no Python. With `wheel`, pip installs the network as a package. With `onnxruntime`, an
    `InferenceSession` runs the network. One operator is written into the output folder itself.
    Several operators get a folder each.

    --trust-source is needed for a MetaSchedule database if the model of the run is your own Python
    code. Libraries of operators that are TensorIR functions need it too.
    """
    from chameleon_networks._commands import exporting  # noqa: PLC0415 - --help is quick

    if only and form in {"wheel", "onnxruntime"}:
        raise click.UsageError(f"{form} holds the network, and no operator of --task")
    if level is not None and (only or form != "c"):
        raise click.UsageError("--level is for a bundle for C of a network")
    if form == "onnxruntime":
        if name is not None:
            raise click.UsageError("--name is for a bundle for C or a wheel")
        exported = exporting.export_onnx_file(folder, output)
    elif form == "wheel":
        exported = exporting.export_wheel(folder, output, name, version)
    else:
        exported = exporting.export_run(
            folder, form, output, only, name, level=level, trust_source=trust_source
        )
    if as_json:
        about = {"run": str(folder.absolute()), "tasks": exported.tasks}
        click.echo(json.dumps({**about, "files": [str(f.absolute()) for f in exported.files]}))
    else:
        for file in exported.files:
            click.echo(str(file))
    for note in exported.notes:
        click.echo(f"note: {note}", err=True)
