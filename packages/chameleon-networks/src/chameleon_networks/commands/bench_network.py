"""``chameleon bench-network``: a delivered network against whatever else runs it here."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click
from chameleon_cli.options import trust_option
from chameleon_core.errors import ConfigError
from chameleon_tvm.types import INT8

from chameleon_networks.frameworks import PRECISIONS

MOST = 64
"""The largest number of clients, and of neighbours."""


@click.command(
    "bench-network", epilog=f"Example: chameleon bench-network runs/net --precision {INT8}"
)
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
    help="A function that yields calibration inputs; the run's own, or random ones, if none.",
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

    With --precision others run it in int8, bfloat16 or float16, too, or as they come. Each
    quantizes it by its own means, calibrated with the same inputs. Every error is the largest
    difference to the framework's answers in float32, over the largest of those, on other inputs.

    With --streams or --neighbours every turn is a fresh process, whose threads call one loaded
    network at the same time. Shown are requests a second and quantiles of the latency, as medians
    over the turns. OpenVINO and onnxruntime have the better of two ways to serve several clients.

    The delivered network is a program and is run. If the model or `calibrate` of the run is Python
    of yours, --trust-source is needed.
    """
    from chameleon_networks.commands.network_times import Timing, show, timed  # noqa: PLC0415 - --help is quick

    if calibrate is not None and not precisions:
        raise ConfigError(
            "--calibrate is for networks in reduced precision, and --precision names none",
            hint=f"Add --precision {INT8}.",
        )
    timing = Timing(
        rivals=None if rivals is None else tuple(name.strip() for name in rivals.split(",")),
        precisions=precisions,
        calibrate=calibrate,
        streams=stream_numbers(streams) if streams or neighbours else (),
        neighbours=neighbours,
        rounds=rounds,
        seconds=seconds,
    )
    show(timing, timed(folder, timing, trust_source=trust_source), as_json=as_json)


def stream_numbers(options: Sequence[str]) -> tuple[int, ...]:
    """Numbers of clients, of options that have one or several with commas each.

    Raises:
        ConfigError: something else is among them.
    """
    words = [word.strip() for option in options for word in option.split(",")]
    wrong = [word for word in words if not word.isdecimal() or not 1 <= int(word) <= MOST]
    if wrong:
        raise ConfigError(
            f"--streams takes whole numbers from 1 to {MOST}, not {wrong[0]!r}",
            hint="Write --streams 1,2,4 for instance.",
        )
    return tuple(dict.fromkeys(map(int, words))) or (1,)
