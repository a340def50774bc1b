"""``chameleon bench-network``: times a delivered network against frameworks on this machine."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click
from chameleon_bench.api import margin_of
from chameleon_cli.api import trust_option
from chameleon_core.plugin_api import ConfigError, ExitCode
from chameleon_tvm.api import INT8

from chameleon_networks._frameworks import PRECISIONS

MOST = 64
"""The largest number of clients, and of busy processes."""


@click.command(
    "bench-network", epilog=f"Example: chameleon bench-network runs/net --precision {INT8}"
)
@click.argument("folder", metavar="RUN", type=click.Path(path_type=Path))
@click.option(
    "--rounds",
    type=click.IntRange(min=2),
    help="Turns of each network: 15 of at least 0.15 s, or 5 of --seconds with --streams.",
)
@click.option(
    "--rivals", help="Frameworks to compare with, separated by commas. [default: all installed]"
)
@click.option(
    "--precision",
    "precisions",
    multiple=True,
    type=click.Choice(PRECISIONS),
    help="Compare with frameworks in this precision too, and show errors. May be repeated.",
)
@click.option(
    "--calibrate",
    metavar="FILE:FUNCTION",
    help="A function that yields calibration inputs. [default: the run's, or random ones]",
)
@click.option(
    "--streams",
    multiple=True,
    metavar="N",
    help="Let N clients call a network at once, and count requests. May be 1,2,4 or repeated.",
)
@click.option(
    "--neighbours",
    type=click.IntRange(min=0, max=MOST),
    default=0,
    help="Number of busy processes beside every network. Implies --streams 1.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=2.0,
    show_default=True,
    help="Duration of a turn with --streams or --neighbours.",
)
@click.option(
    "--at",
    multiple=True,
    metavar="NAME=N",
    help="Time inputs of this size: batch=2,length=77. May be repeated. [default: each bucket]",
)
@click.option(
    "--against",
    metavar="FOLDER|NAME",
    help="Judge whether the network is slower than that of another folder, or than a framework.",
)
@click.option(
    "--fail-if-slower",
    metavar="PERCENT",
    help="With --against: exit with 5 if it is slower by more, with 6 if undecided.",
)
@click.option(
    "--profile", is_flag=True, help="Time each kernel in the network and alone, and no rivals."
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
    at: tuple[str, ...],
    against: str | None,
    fail_if_slower: str | None,
    profile: bool,
    trust_source: bool,
    as_json: bool,
) -> None:
    """Time the delivered network of folder RUN against torch, onnxruntime and others.

    Every framework runs in its own process, started as users start it, and the turns of all
    processes alternate. The output shows medians over the turns with 95 % bootstrap intervals. A
    network for several shapes is timed in each bucket of shapes, or at the sizes of --at. For a
    range, the default is a few sizes of the range.

    A framework that computes in another precision by default runs the network in both precisions.
    With --precision, frameworks run it in float32, and in int8, bfloat16, float16 or the precision
    that they choose (as-it-comes). Each framework quantizes with its own tools and the same
    calibration inputs. An error is the largest difference from the framework's float32 outputs over
    the largest of these outputs, on inputs that were not used for calibration.

    With --streams N, every turn is a new process, in which N threads call one loaded network at the
    same time. With --neighbours N, N other processes keep CPU cores busy during each turn. The
    output shows requests a second and quantiles of the latency, as medians over the turns. OpenVINO
    and onnxruntime can serve several clients in two ways each, and the faster way counts.

    With --profile, the output shows the time of each kernel inside the network, and right after
    itself. It also shows how far the kernel is from the peak of its instructions in registers. All
    are measured in turns.

    With --against, RUN may also be a delivered folder. Both networks are timed in turns, in pairs
    of new processes, until a 99.9 % interval of the ratio decides, or for three minutes. A network
    may be slower by 3 %, or by --fail-if-slower.

    The command runs the delivered network, which is a program. If the model or `calibrate` of the
    run is your own Python code, --trust-source is needed.
    """
    from chameleon_networks._commands import network_profile, network_times  # noqa: PLC0415 - --help is quick

    if against is None and fail_if_slower is not None:
        raise ConfigError(
            "--fail-if-slower needs a network to compare with",
            hint="Add --against with a run folder, a delivered network or a framework.",
        )
    if against is not None:
        from chameleon_networks._commands import speed_gate  # noqa: PLC0415 - --help is quick

        margin = margin_of(fail_if_slower)
        results = speed_gate.gates(folder, against, margin=margin, at=at, trust_source=trust_source)
        speed_gate.show(results, as_json=as_json)
        sys.exit(speed_gate.exit_code_of(results) if fail_if_slower is not None else ExitCode.OK)
    if profile:
        profiles = network_profile.profiled(folder, trust_source=trust_source)
        network_profile.show(profiles, as_json=as_json)
        return
    if calibrate is not None and not precisions:
        raise ConfigError(
            "--calibrate is for networks in reduced precision, and --precision names none",
            hint=f"Add --precision {INT8}.",
        )
    timing = network_times.Timing(
        rivals=None if rivals is None else tuple(name.strip() for name in rivals.split(",")),
        precisions=precisions,
        calibrate=calibrate,
        streams=stream_numbers(streams) if streams or neighbours else (),
        neighbours=neighbours,
        rounds=rounds,
        seconds=seconds,
        at=at,
    )
    times = network_times.timed(folder, timing, trust_source=trust_source)
    network_times.show(timing, times, as_json=as_json)


def stream_numbers(options: Sequence[str]) -> tuple[int, ...]:
    """Read the numbers of concurrent clients from the values of the option --streams."""
    words = [word.strip() for option in options for word in option.split(",")]
    wrong = [word for word in words if not word.isdecimal() or not 1 <= int(word) <= MOST]
    if wrong:
        raise ConfigError(
            f"--streams takes whole numbers from 1 to {MOST}, not {wrong[0]!r}",
            hint="Write --streams 1,2,4 for instance.",
        )
    return tuple(dict.fromkeys(map(int, words))) or (1,)
