"""``chameleon cpu``: what a target's CPU is taken for, and what estimates know of it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from chameleon_tvm.device.cpus.description import TargetInfo


@click.command("cpu")
@click.option("--target", "text", default="native", show_default=True, help="A CPU target.")
@click.option(
    "--measure",
    "measuring",
    is_flag=True,
    help="Measure this machine's memory bandwidth (seconds), and keep it for all runs to come.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(text: str, measuring: bool, as_json: bool) -> None:
    """Show what code is compiled for on a CPU, and what first guesses know of it."""
    import attrs  # noqa: PLC0415 - --help is quick
    from chameleon_core.plugins.records import NoOptions  # noqa: PLC0415

    from chameleon_tvm.device.cpus.features import used_features  # noqa: PLC0415
    from chameleon_tvm.device.targets import TVMTargets, target_info, tvm_target  # noqa: PLC0415
    from chameleon_tvm.instructions.choosing import (  # noqa: PLC0415
        others_records_of,
        own_records_of,
    )

    target = TVMTargets(NoOptions()).resolve(text)
    info = target_info(target)
    found: dict[str, Any] = {"target": json.loads(target)}
    if measuring:
        found["measured"] = _measured(target, info)
        target_info.cache_clear()
        info = target_info(target)
    found["features"] = sorted(used_features(tvm_target(target)))
    had = [*own_records_of(target), *others_records_of(target)]
    found["instructions"] = [record.name for record in had]
    found["description"] = attrs.asdict(info)
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    rows = [("target", target)]
    rows += [(name, " ".join(found[name])) for name in ("features", "instructions")]
    rows += [
        (name.replace("_", " "), _shown(value)) for name, value in found["description"].items()
    ]
    if measuring:
        rows += [(name, str(value)) for name, value in found["measured"].items()]
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        click.echo(f"{name:{width}}  {value}")


def _shown(value: float | bool) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _measured(target: str, info: TargetInfo) -> dict[str, Any]:
    from chameleon_core.errors import TargetError  # noqa: PLC0415

    from chameleon_tvm.commands.cpu_measuring import measure  # noqa: PLC0415
    from chameleon_tvm.device.cpus.description import is_this_cpu  # noqa: PLC0415
    from chameleon_tvm.device.cpus.memory import keep_memory_rate  # noqa: PLC0415
    from chameleon_tvm.device.targets import tvm_target  # noqa: PLC0415

    values = json.loads(target)
    if not is_this_cpu(tvm_target(target), values):
        raise TargetError(
            "only this machine's CPU can be measured, and the target names another one",
            hint="Run `chameleon cpu --measure` on the machine that runs the kernels.",
        )
    measured = measure(target, info)
    file = keep_memory_rate(values["mcpu"], info.cores, measured.memory_rate)
    return {
        "peak GFLOP/s": round(measured.flops / 1e9, 1),
        "memory GB/s": round(measured.memory_bytes / 1e9, 1),
        "kept in": str(file),
    }
