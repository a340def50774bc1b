"""``chameleon schema``: prints the JSON Schema with which editors check pipeline files."""

from __future__ import annotations

import json
from pathlib import Path

import click
from chameleon_core.plugin_api import ConfigError

from chameleon_cli._json_schema.document import pipeline_schema


@click.command("schema", epilog="Example: chameleon schema -o schema.json")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write it to this file, and say how an editor finds it.",
)
def command(output: Path | None) -> None:
    """Print the JSON Schema (draft 2020-12) of pipeline files, with the installed plugins.

    Editors with yaml-language-server complete and check a file whose first line is
    `# yaml-language-server: $schema=FILE`. `chameleon validate` checks more than a schema can.
    """
    text = json.dumps(pipeline_schema(), indent=2)
    if output is None:
        click.echo(text)
        return
    hint = "name a file in a folder that exists and may be written to"
    with ConfigError.on_os_error(f"{output} cannot be written", hint=hint):
        output.write_text(f"{text}\n", encoding="utf-8")
    click.echo(
        f"wrote {output}; a pipeline beside it begins with\n"
        f"# yaml-language-server: $schema={output.name}"
    )
