"""The command ``chameleon cpu``, which describes the CPU of a target.

It also shows the facts with which times are estimated.
"""

from __future__ import annotations

import json

import click


@click.command("cpu", epilog='Example: chameleon cpu --target "llvm -mcpu=znver4"')
@click.option("--target", "text", default="native", show_default=True, help="A CPU target.")
@click.option(
    "--measure",
    "measuring",
    is_flag=True,
    help="Measure the memory bandwidth of this machine, and keep it for later runs.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(text: str, measuring: bool, as_json: bool) -> None:
    """Show what CPU a target's code is compiled for, and the facts that first guesses use."""
    # Imports TVM, which --help does without.
    from chameleon_tvm._commands.cpu_measurement import describe  # noqa: PLC0415

    report = describe(text, measuring=measuring)
    if as_json:
        click.echo(json.dumps(report, indent=2))
        return
    rows = [("target", json.dumps(report["target"], sort_keys=True))]
    rows += [(name, " ".join(report[name])) for name in ("features", "instructions")]
    rows += [("kernels", "; ".join(f"{name}: {text}" for name, text in report["kernels"].items()))]
    rows += [
        (name.replace("_", " "), _format(value)) for name, value in report["description"].items()
    ]
    rows += [(name, str(value)) for name, value in report.get("measured", {}).items()]
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        click.echo(f"{name:{width}}  {value}")


def _format(value: float | bool) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)
