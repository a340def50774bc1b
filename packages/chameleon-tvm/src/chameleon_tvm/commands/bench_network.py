"""``chameleon bench-network``: a delivered network against whatever else runs it here."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from chameleon_tvm.frontends.networks import NetworkFrontend
    from chameleon_tvm.graph.latency import Rounds

OURS = "network"
_FAILED = "it does not run here; the log above says why"


@click.command("bench-network")
@click.argument("folder", metavar="RUN", type=click.Path(path_type=Path))
@click.option(
    "--rounds",
    type=click.IntRange(min=2),
    default=15,
    show_default=True,
    help="Turns of each contender; a turn lasts 0.15 s at least.",
)
@click.option(
    "--rivals", help="Those to compare with, with commas; all that are installed if none."
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
def command(folder: Path, rounds: int, rivals: str | None, as_json: bool) -> None:
    """Time the delivered network of folder RUN against torch, onnxruntime and others.

    Every contender has a process of its own with the same number of threads; their turns are
    interleaved. Shown are medians over the turns with 95 % bootstrap intervals. A network in
    buckets of shapes is timed in each.
    """
    import numpy as np  # noqa: PLC0415 - --help is quick
    from chameleon_cli.streams import results_alone  # noqa: PLC0415
    from chameleon_core.errors import RunFolderError  # noqa: PLC0415
    from chameleon_core.run_folder import NETWORK, read_store  # noqa: PLC0415

    from chameleon_tvm.commands.runs import network_of, pipeline_of, threads_of  # noqa: PLC0415
    from chameleon_tvm.frontends.bucketed import BucketedFrontend  # noqa: PLC0415

    with results_alone():
        with read_store(folder) as store:
            frontend = network_of(pipeline_of(store, folder), store)
            threads = threads_of(store)
        delivered = folder / NETWORK
        if not delivered.is_dir():
            raise RunFolderError(
                f"no network was delivered in {folder}",
                hint=f"Try `chameleon compile {folder}`; it says what is wrong.",
            )
        if isinstance(frontend, BucketedFrontend):
            networks = {bucket.name: network for bucket, network in frontend.networks}
        else:
            networks = {"": frontend}
        summaries = {}
        for bucket, network in networks.items():
            given = None if rivals is None else [one.strip() for one in rivals.split(",")]
            names = network.frameworks if given is None else tuple(given)
            _check(names, network)
            inputs = network.samples(np.random.default_rng(0))
            times = _timed(network, delivered, names, inputs, threads=threads, rounds=rounds)
            absent = {} if rivals is not None else dict(network.left_out)
            failed = {name: _FAILED for name in names if not times.get(name)}
            summaries[bucket] = {**_summary(times), "left_out": absent | failed}
    about = {"run": str(folder.absolute()), "threads": threads}
    if as_json:
        alone = summaries.get("")
        click.echo(json.dumps(about | ({"buckets": summaries} if alone is None else alone)))
        return
    for bucket, summary in summaries.items():
        if bucket:
            click.echo(f"bucket {bucket}")
        _show(summary)


def _check(names: tuple[str, ...], frontend: NetworkFrontend) -> None:
    from chameleon_core.errors import ConfigError  # noqa: PLC0415

    unknown = [name for name in names if name not in frontend.frameworks]
    if unknown:
        raise ConfigError(
            f"{', '.join(unknown)} cannot run this network here",
            hint=f"There are: {', '.join(frontend.frameworks)}.",
        )


def _timed(
    frontend: NetworkFrontend,
    delivered: Path,
    names: tuple[str, ...],
    inputs: Any,
    *,
    threads: int,
    rounds: int,
) -> Rounds:
    import structlog  # noqa: PLC0415
    from chameleon_core.errors import ChameleonError  # noqa: PLC0415

    from chameleon_tvm.graph.latency import turn_seconds  # noqa: PLC0415
    from chameleon_tvm.graph.processes import delivered_process, framework_process  # noqa: PLC0415

    with contextlib.ExitStack() as stack:
        processes = [stack.enter_context(delivered_process(OURS, delivered, threads=threads))]
        for name in names:
            try:
                made = framework_process(frontend, name, threads=threads)
            except ChameleonError as error:
                structlog.get_logger().warning("network_not_run", by=name, problem=str(error))
                continue
            processes.append(stack.enter_context(made))
        return turn_seconds(processes, inputs, threads=threads, rounds=rounds)


def _summary(times: Rounds) -> dict[str, Any]:
    """Medians and intervals in seconds, and how many times as fast as the best rival it is."""
    from chameleon_bench.statistics.estimates import estimate  # noqa: PLC0415

    found = {name: estimate(seconds) for name, seconds in times.items() if seconds}
    ours = found.get(OURS)
    rivals = [one.median for name, one in found.items() if name != OURS]
    return {
        "contenders": {
            name: {
                "median_seconds": one.median,
                "low_seconds": one.low,
                "high_seconds": one.high,
                "turns": one.of,
            }
            for name, one in found.items()
        },
        "ratio": min(rivals) / ours.median if ours is not None and rivals else None,
    }


def _show(summary: dict[str, Any]) -> None:
    from chameleon_cli.results_table import duration, print_table  # noqa: PLC0415

    rows = [
        (
            name,
            duration(one["median_seconds"]),
            f"{duration(one['low_seconds'])} - {duration(one['high_seconds'])}",
            str(one["turns"]),
        )
        for name, one in summary["contenders"].items()
    ]
    print_table(("network", "median", "95 % interval", "turns"), rows)
    for name, why in summary["left_out"].items():
        click.echo(f"{name} left out: {why}")
    if summary["ratio"] is not None:
        click.echo(f"{summary['ratio']:.2f} times as fast as the best of the others")
