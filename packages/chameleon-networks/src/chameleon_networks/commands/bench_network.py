"""``chameleon bench-network``: a delivered network against whatever else runs it here."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import click
from chameleon_cli.options import trust_option
from chameleon_core.errors import ConfigError, RunFolderError
from chameleon_tvm.types import INT8

from chameleon_networks.frameworks.reduced import PRECISIONS

MOST = 64
"""The largest number of clients, and of neighbours."""
_FAILED = "it does not run here; the log above says why"


@click.command("bench-network")
@click.argument("folder", metavar="RUN", type=click.Path(path_type=Path))
@click.option(
    "--rounds",
    type=click.IntRange(min=2),
    help="Turns of each contender: 15 of at least 0.15 s, or 5 of --seconds with --streams.",
)
@click.option(
    "--rivals", help="Those to compare with, with commas; all that are installed if none."
)
@click.option(
    "--precision",
    "precisions",
    multiple=True,
    type=click.Choice(PRECISIONS),
    help="Compare with those in this precision, too, and show all errors; may be repeated.",
)
@click.option(
    "--calibrate",
    metavar="FILE:FUNCTION",
    help="What yields inputs to calibrate with; the run's own, or random ones, if none.",
)
@click.option(
    "--streams",
    multiple=True,
    metavar="N",
    help="Have so many clients call it at once, and count requests; may be 1,2,4 or repeated.",
)
@click.option(
    "--neighbours",
    type=click.IntRange(min=0, max=MOST),
    default=0,
    help="Have so many busy processes run beside every contender, as with --streams 1.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=2.0,
    show_default=True,
    help="How long a turn is with --streams or --neighbours.",
)
@trust_option
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
def command(
    folder: Path,
    *,
    rounds: int | None,
    rivals: str | None,
    precisions: tuple[str, ...],
    calibrate: str | None,
    streams: tuple[str, ...],
    neighbours: int,
    seconds: float,
    trust_source: bool,
    as_json: bool,
) -> None:
    """Time the delivered network of folder RUN against torch, onnxruntime and others.

    Every contender has a process of its own, started as users start it; their turns are
    interleaved. Shown are medians over the turns with 95 % bootstrap intervals. A network in
    buckets of shapes is timed in each.

    With --precision others run it in int8, bfloat16 or float16, too, each quantized by its own
    means and calibrated with the same inputs, or as they come. Every error is the largest
    difference to the framework's answers in float32, over the largest of those, on other inputs.

    With --streams or --neighbours every turn is a fresh process, whose threads call one loaded
    network at the same time. Shown are requests a second and quantiles of the latency, as medians
    over the turns. OpenVINO and onnxruntime have the better of two ways to serve several clients.

    The delivered network is a program and is run. If the model or `calibrate` of the run is Python
    of yours, --trust-source is needed.
    """
    from chameleon_cli.streams import results_alone  # noqa: PLC0415 - --help is quick
    from chameleon_core.run_folder import NETWORK, read_store  # noqa: PLC0415

    from chameleon_networks.commands.contenders import OURS, check_names, show_times, times_of  # noqa: PLC0415
    from chameleon_networks.commands.runs import network_of, pipeline_of, threads_of  # noqa: PLC0415
    from chameleon_networks.commands.streams import rivals_of, show, summary_of  # noqa: PLC0415
    from chameleon_networks.delivery.bucketed import BucketedFrontend  # noqa: PLC0415
    from chameleon_networks.delivery.side_by_side import Compared, side_by_side  # noqa: PLC0415
    from chameleon_networks.delivery.typed.comparing import reduced_request  # noqa: PLC0415
    from chameleon_networks.serving.streams import Served  # noqa: PLC0415

    if calibrate is not None and not precisions:
        raise ConfigError(
            "--calibrate is for networks in reduced precision, and --precision names none",
            hint=f"Add --precision {INT8}.",
        )
    clients = stream_numbers(streams) if streams or neighbours else ()
    with results_alone():
        with read_store(folder) as store:
            frontend = network_of(pipeline_of(store, folder, trust_source=trust_source), store)
            threads = threads_of(store)
        delivered = folder / NETWORK
        if not delivered.is_dir():
            raise RunFolderError(
                f"no network was delivered in {folder}",
                hint=f"Try `chameleon compile {folder}`; it says what is wrong.",
            )
        if isinstance(frontend, BucketedFrontend):
            frontends = {bucket.name: one for bucket, one in frontend.networks}
        else:
            frontends = {"": frontend}
        summaries = {}
        for bucket, frontend in frontends.items():
            network, source = frontend.network, calibrate or frontend.calibrate
            given = None if rivals is None else [one.strip() for one in rivals.split(",")]
            if clients:
                served = Served(
                    network=network,
                    ours=OURS,
                    folder=delivered,
                    bucket=bucket,
                    names=rivals_of(network, given),
                    precisions=precisions,
                    calibrate=source,
                    streams=clients,
                    neighbours=neighbours,
                    threads=threads,
                    rounds=rounds or 5,
                    seconds=seconds,
                )
                summaries[bucket] = summary_of(served, all_rivals=given is None)
                continue
            names = network.frameworks if given is None else tuple(given)
            check_names(names, network)
            asked = Compared(
                network=network,
                ours={OURS: delivered},
                bucket=bucket,
                names=names,
                reduced=partial(reduced_request, network, precisions, source)
                if precisions
                else None,
                threads=threads,
                rounds=rounds or 15,
            )
            found = side_by_side(asked)
            absent = {} if rivals is not None else dict(network.left_out)
            failed = {name: _FAILED for name in names if not found.times.get(name)}
            summaries[bucket] = {
                **times_of(found),
                "left_out": absent | (dict(found.left_out) if precisions else failed),
            }
    about = {"run": str(folder.absolute()), "threads": threads, "neighbours": neighbours}
    if as_json:
        alone = summaries.get("")
        click.echo(json.dumps(about | ({"buckets": summaries} if alone is None else alone)))
        return
    for bucket, summary in summaries.items():
        if bucket:
            click.echo(f"bucket {bucket}")
        if clients:
            show(summary, neighbours)
        else:
            show_times(summary)


def stream_numbers(given: Sequence[str]) -> tuple[int, ...]:
    """Numbers of clients, of options that have one or several with commas each.

    Raises:
        ConfigError: something else is among them.
    """
    words = [word.strip() for option in given for word in option.split(",")]
    wrong = [word for word in words if not word.isdecimal() or not 1 <= int(word) <= MOST]
    if wrong:
        raise ConfigError(
            f"--streams takes whole numbers from 1 to {MOST}, not {wrong[0]!r}",
            hint="Write --streams 1,2,4 for instance.",
        )
    return tuple(dict.fromkeys(map(int, words))) or (1,)
