"""The implementation of ``chameleon bench-network``: latencies, or requests per second."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import click
from chameleon_bench.api import estimate
from chameleon_cli.api import duration, print_table, results_alone
from chameleon_core.api import NetworkResult, RunView, words
from chameleon_core.plugin_api import FLOAT32, ConfigError

from chameleon_networks._artifact.dispatch import padding_test, timed_extents
from chameleon_networks._commands.runs import delivered_in, network_of, threads_of
from chameleon_networks._comparison.comparison import Compared, FrameworkTimes, compare_networks
from chameleon_networks._comparison.reduced_precision import ComputedPrecision
from chameleon_networks._frameworks import AS_IT_COMES
from chameleon_networks._frontends.bucketed import ShapeFrontend
from chameleon_networks._frontends.network import NetworkFrontend
from chameleon_networks._importers.imported_network import ImportedNetwork
from chameleon_networks._shapes import Dimension
from chameleon_networks._throughput.comparison import ThroughputRequest, measure_throughput
from chameleon_networks._throughput.model_files import FRAMEWORKS

Summary = Mapping[str, Any]
"""Results of one comparison, as JSON values."""


@attrs.frozen(kw_only=True)
class Timing:
    """How networks are timed: the options of ``chameleon bench-network``.

    Attributes:
        rivals: Names of the frameworks to compare with. None means all that are installed.
        precisions: Reduced precisions in which frameworks run the network as well.
        calibrate: The source of calibration inputs. None means the source that the run used.
        streams: The numbers of concurrent clients to measure. Empty to time single inferences.
        neighbours: Number of busy processes that run beside each timed network.
        rounds: Number of turns of each network. None means the default.
        seconds: Duration of one turn with clients, in seconds.
        at: Sizes of inputs, such as ``batch=2,length=77``. Empty for each bucket.
    """

    rivals: tuple[str, ...] | None
    precisions: tuple[str, ...]
    calibrate: str | None
    streams: tuple[int, ...]
    neighbours: int
    rounds: int | None
    seconds: float
    at: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class Timed:
    """The times of a delivered network and its rivals, which a command reads or measures.

    Attributes:
        folder: The absolute path of the run folder.
        buckets: The results by the name of the bucket, or by the size and what it is padded to. A
            network for one shape has an empty name.
    """

    folder: Path
    threads: int
    buckets: Mapping[str, Summary]


def timed(folder: Path, timing: Timing, *, trust_source: bool) -> Timed:
    """Time the delivered network of a run folder, in each bucket of shapes."""
    with results_alone():
        with RunView(folder) as run:
            work = network_of(run.model_choice(trust_source=trust_source), run)
            threads = threads_of(run)
        delivered = delivered_in(folder)
        buckets = {
            size.name: _times_at(size, timing, delivered, threads)
            for size in sizes_of(work, timing.at)
        }
    return Timed(folder=folder.absolute(), threads=threads, buckets=buckets)


def show(timing: Timing, times: Timed, *, as_json: bool) -> None:
    """Print the times as tables, or as one JSON object."""
    if as_json:
        about = {"run": str(times.folder), "threads": times.threads}
        alone = times.buckets.get("")
        results = {"buckets": times.buckets} if alone is None else alone
        click.echo(json.dumps({**about, "neighbours": timing.neighbours, **results}))
        return
    for bucket, summary in times.buckets.items():
        if bucket:
            click.echo(f"bucket {bucket}")
        if timing.streams:
            _show_streams(summary, timing.neighbours)
        else:
            _show_times(summary)


@attrs.frozen(kw_only=True)
class Size:
    """A size of inputs to time a network at.

    Attributes:
        name: The name of the size in results.
        bucket: The name of the bucket that computes inputs of the size.
        frontend: The frontend of that bucket.
        network: The network for inputs of the size.
    """

    name: str
    bucket: str
    frontend: NetworkFrontend
    network: ImportedNetwork


def sizes_of(work: ShapeFrontend, at: Sequence[str]) -> list[Size]:
    """The sizes to time: those that are asked for, or the buckets, or the probes of ranges."""
    bucketed = None if isinstance(work, NetworkFrontend) else work.network
    if bucketed is None or not (at or bucketed.is_open):
        if at:
            raise ConfigError(
                "the network has one shape, and --at is for several", hint="Leave out --at."
            )
        return [
            Size(name=name, bucket=name, frontend=frontend, network=frontend.network)
            for name, frontend in work.by_bucket.items()
        ]
    dimensions = bucketed.dimensions
    probes = [padding_test(dimensions, _extents(dimensions, size)) for size in at]
    names = {bucket.extents: bucket.name for bucket, _ in bucketed.networks}
    sizes = []
    for probe in probes or timed_extents(dimensions):
        bucket = names[probe.padded]
        network = bucketed.with_extents(probe.asked)
        frontend = work.by_bucket[bucket]
        name = probe.words or bucket
        sizes.append(Size(name=name, bucket=bucket, frontend=frontend, network=network))
    return sizes


def _extents(dimensions: Sequence[Dimension], size: str) -> tuple[int, ...]:
    """Read the extent of each dimension from a value of --at, such as ``batch=2,length=77``."""
    pairs = [part.partition("=") for part in size.split(",")]
    written = {name.strip(): extent.strip() for name, _, extent in pairs}
    known = {str(dimension): dimension for dimension in dimensions}
    example = ",".join(f"{name}={own.buckets[-1]}" for name, own in known.items())
    hint = f"Write for instance --at '{example}'."
    if written.keys() != known.keys() or not all(text.isdecimal() for text in written.values()):
        raise ConfigError(f"--at needs a number for {', '.join(known)}, not {size!r}", hint=hint)
    extents = {name: int(text) for name, text in written.items()}
    for name, extent in extents.items():
        if not known[name].takes(extent):
            buckets = ", ".join(map(str, known[name].buckets))
            raise ConfigError(f"no bucket takes {name} {extent}; there are {buckets}", hint=hint)
    return tuple(extents[name] for name in known)


def _times_at(size: Size, timing: Timing, delivered: Path, threads: int) -> Summary:
    """The times of each network for inputs of a size, or its figures with clients."""
    network = size.network
    compared = Compared(
        network=network,
        ours={OURS: delivered},
        bucket=size.bucket,
        names=_rivals(network, timing),
        precisions=timing.precisions,
        calibrate=timing.calibrate or size.frontend.calibrate,
        threads=threads,
        rounds=timing.rounds or (5 if timing.streams else 15),
    )
    if timing.streams:
        request = ThroughputRequest(
            **attrs.asdict(compared, recurse=False),
            streams=timing.streams,
            neighbours=timing.neighbours,
            seconds=timing.seconds,
        )
        figures, left_out = measure_throughput(request)
        streams = {
            str(count): {"contenders": times, "ratios": _request_ratios(times)}
            for count, times in figures.items()
        }
        summary: Summary = {"streams": streams}
    else:
        comparison = compare_networks(compared)
        summary, left_out = _times(comparison), dict(comparison.left_out)
    absent = dict(network.left_out) if timing.rivals is None else {}
    return {**summary, "left_out": absent | left_out}


OURS = "network"
"""The name of the delivered network in results."""


def _rivals(network: ImportedNetwork, timing: Timing) -> tuple[str, ...]:
    """The frameworks to compare with: those that are named, or all that can be compared so."""
    names, cannot = network.frameworks, "cannot run this network here"
    if timing.streams:
        names = tuple(name for name in names if name in FRAMEWORKS)
        cannot = "cannot be compared with --streams or --neighbours here"
    unknown = [name for name in timing.rivals or () if name not in names]
    if unknown:
        raise ConfigError(
            f"{', '.join(unknown)} {cannot}", hint=f"There are: {', '.join(names) or 'none'}."
        )
    return names if timing.rivals is None else timing.rivals


def _times(comparison: FrameworkTimes) -> Summary:
    """The median seconds of each network with interval, and the speedup over the best rival."""
    estimates = {name: estimate(seconds) for name, seconds in comparison.times.items() if seconds}
    medians = {name: interval.median for name, interval in estimates.items()}
    ratios = _ratios(medians, comparison.about)
    summary = {
        "contenders": {
            name: {
                "median_seconds": interval.median,
                "low_seconds": _known(interval.low),
                "high_seconds": _known(interval.high),
                "turns": interval.of,
                **_facts(comparison.about.get(name)),
            }
            for name, interval in estimates.items()
        },
        "ratio": _like(ratios, comparison),
    }
    return {**summary, "ratios": ratios} if comparison.about else summary


def _facts(about: ComputedPrecision | None) -> Summary:
    """Facts about the precision of a network, without empty ones."""
    return {} if about is None else {k: v for k, v in attrs.asdict(about).items() if v != ()}


def _known(seconds: float) -> float | None:
    """An end of an interval in seconds; None if there was one turn, which has no interval."""
    return None if math.isnan(seconds) else seconds


def _like(ratios: Mapping[str, float], comparison: FrameworkTimes) -> float | None:
    """The ratio to rivals in the delivered network's own precision, or else in float32, or None."""
    if not comparison.about:
        return next(iter(ratios.values()), None)
    own = comparison.about[OURS].precisions if OURS in comparison.about else ()
    return next((ratios[asked] for asked in (*own, FLOAT32) if asked in ratios), None)


def _ratios(
    medians: Mapping[str, float], about: Mapping[str, ComputedPrecision]
) -> dict[str, float]:
    """The speedup over the best rival by precision, that of the delivered network first."""
    ours = medians.get(OURS)
    if ours is None:
        return {}
    groups: dict[str, list[float]] = {}
    for name, seconds in medians.items():
        if name != OURS:
            groups.setdefault(about[name].asked if name in about else "", []).append(seconds)
    own = about[OURS].precisions if OURS in about else ()
    order = sorted(groups, key=lambda asked: (asked not in own, asked != AS_IT_COMES))
    return {asked: min(groups[asked]) / ours for asked in order}


def _show_times(summary: Summary) -> None:
    """Print the latencies of one bucket as a table, and the ratios."""
    ratios: Mapping[str, float] = summary.get("ratios", {})
    contenders = summary["contenders"].items()
    if ratios:
        order = list(ratios)
        contenders = sorted(
            contenders, key=lambda pair: -1 if pair[0] == OURS else order.index(pair[1]["asked"])
        )
    header: Sequence[str] = ("network", "median", "95 % interval", "turns")
    rows = [
        (
            name,
            duration(contender["median_seconds"]),
            "-"
            if contender["low_seconds"] is None
            else f"{duration(contender['low_seconds'])} - {duration(contender['high_seconds'])}",
            str(contender["turns"]),
            *((contender["precision"], f"{contender['max_relative_error']:.1e}") if ratios else ()),
        )
        for name, contender in contenders
    ]
    print_table((*header, *(("precision", "error") if ratios else ())), rows)
    for name, why in summary["left_out"].items():
        click.echo(f"{name} left out: {why}")
    for asked, ratio in ratios.items():
        click.echo(f"{ratio:.2f} times as fast as the best of the others {_in_words(asked)}")
    for sentence in _result(summary["contenders"]).default_sentences if ratios else ():
        click.echo(sentence)
    if not ratios and summary["ratio"] is not None:
        click.echo(f"{summary['ratio']:.2f} times as fast as the best of the others")


def _in_words(asked: str) -> str:
    return "as they come" if asked == AS_IT_COMES else f"in {asked}"


def _result(contenders: Mapping[str, Summary]) -> NetworkResult:
    """The result of a comparison in several precisions, without what its messages do not need."""
    rivals = {
        name: NetworkResult.Rival(
            **{key: row[key] for key in ("asked", "precision", "max_relative_error")},
            seconds=row["median_seconds"],
        )
        for name, row in contenders.items()
    }
    own = contenders.get(OURS, {}).get("precisions", ())
    return NetworkResult(rivals_reduced=rivals, precisions=own)


HEADER = ("network", "precision", "requests/s", "p50", "p90", "p99", "turns", "best way")


def _request_ratios(times: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    groups: dict[str, list[float]] = {}
    for name, figures in times.items():
        if name != OURS:
            groups.setdefault(figures["asked"], []).append(figures["requests_per_second"])
    own = times[OURS]["requests_per_second"]
    return {asked: own / max(others) for asked, others in groups.items()}


def _show_streams(summary: Summary, neighbours: int) -> None:
    """Print the figures with clients as a table, and the ratios."""
    beside = f", {words.counted(neighbours, 'busy neighbour')}" if neighbours else ""
    for streams, figures in summary["streams"].items():
        click.echo(f"{words.counted(int(streams), 'client')}{beside}")
        rows = [
            (
                name,
                contender["precision"],
                f"{contender['requests_per_second']:.1f}",
                *(duration(contender[f"p{quantile}_seconds"]) for quantile in (50, 90, 99)),
                str(contender["turns"]),
                contender["way"] or "-",
            )
            for name, contender in figures["contenders"].items()
        ]
        print_table(HEADER, rows)
        for asked, ratio in figures["ratios"].items():
            click.echo(
                f"{ratio:.2f} times as many requests a second as the best of the others "
                f"{_in_words(asked)}"
            )
    for name, why in summary["left_out"].items():
        click.echo(f"{name} left out: {why}")
