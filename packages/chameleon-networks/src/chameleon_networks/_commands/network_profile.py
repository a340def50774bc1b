"""The table of ``chameleon bench-network --profile``: kernels in a network, alone, and at peak."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import attrs
import click
import numpy as np
from chameleon_cli.api import duration, print_table, results_alone
from chameleon_core.api import RunView
from chameleon_core.plugin_api import Arrays, SpaceProvider
from chameleon_tvm.api import TVMBuilder

from chameleon_networks._artifact.writer import read_manifest
from chameleon_networks._commands.runs import (
    bucket_folder,
    delivered_in,
    network_of,
    threads_of,
)
from chameleon_networks._compile.kernels import Kernels
from chameleon_networks._evaluation.processes import delivered_process
from chameleon_networks._evaluation.profile import AROUND

_TURNS, _FEWEST = 7, 3
"""Number of turns, each with the network, its kernels alone, and the clocks of the CPU."""
_SECONDS = 20.0
"""Seconds after which a slow network has no more turns than the fewest."""
_REPEATS = 3
"""How often a kernel is repeated after its call in the network, to time it alone."""

Peak = Callable[[], float | None]
"""Returns the seconds of a call at the present peak of the kernel's instructions."""


@attrs.frozen(kw_only=True)
class ProfiledKernel:
    """The times of a kernel; medians over turns.

    Attributes:
        seconds: Time of all calls in one inference, each after the call of the kernel before it.
        alone_seconds: The same for calls right after a call of the same kernel.
        peak_share: Operations per second alone, over those of the kernel's instructions in
            registers on all cores. None for kernels that were not tuned.
    """

    name: str
    calls: int
    seconds: float
    alone_seconds: float
    peak_share: float | None


@attrs.frozen(kw_only=True)
class Profile:
    """The kernels of a network, and the rest of its time.

    Attributes:
        around_seconds: Time outside kernels: checks of arguments, and allocation of outputs.
        ratio: Time of all kernels in the network over their time alone; the median over turns.
    """

    kernels: tuple[ProfiledKernel, ...]
    around_seconds: float
    ratio: float


def profiled(folder: Path, *, trust_source: bool) -> Mapping[str, Profile]:
    """Profile the delivered network of a run folder, in each bucket of shapes."""
    with results_alone(), RunView(folder) as run:
        choice = run.model_choice(trust_source=trust_source)
        work, threads = network_of(choice, run), threads_of(run)
        # TVM's pool would have a thread for every two logical cores.
        os.environ.setdefault("TVM_NUM_THREADS", str(threads))
        profiles = {}
        for bucket, frontend in work.by_bucket.items():
            delivered = bucket_folder(delivered_in(folder), bucket)
            inputs = frontend.network.samples(np.random.default_rng(0))
            peaks = _peaks(run, choice.space.create(), delivered)
            profiles[bucket] = _profile(delivered, inputs, threads, peaks)
        return profiles


def _peaks(run: RunView, space: SpaceProvider, delivered: Path) -> dict[str, Peak]:
    """The peaks of the delivered kernels, by the names of their tasks."""
    tasks = {row.task.name: row.task for row in run.store.tasks()}
    kernels = Kernels({}, space, run.target)
    peaks: dict[str, Peak] = {}
    for entry in read_manifest(delivered)["tasks"]:
        task = tasks.get(entry["name"])
        builder = None if task is None or entry["config"] is None else kernels.builder(task)
        if task is not None and builder is not None:
            peaks[entry["name"]] = partial(_peak_seconds, builder, entry["config"])
    return peaks


def _peak_seconds(builder: TVMBuilder, config: Sequence[int]) -> float | None:
    """The seconds of a call at the present peak of the kernel's instructions."""
    peak = builder.peak(config)
    return None if peak is None else builder.task.flop / peak


def _profile(folder: Path, inputs: Arrays, threads: int, peaks: Mapping[str, Peak]) -> Profile:
    """Profile a network in turns with its kernels alone and with clocks."""
    names: dict[str, int] = {}
    turns: list[dict[str, tuple[float, float, float]]] = []
    with delivered_process("network", folder, threads=threads) as process:
        end = time.monotonic() + _SECONDS
        while len(turns) < (_TURNS if time.monotonic() < end else _FEWEST):
            inside = {row.name: row for row in process.profile(inputs)}
            alone = {row.name: row for row in process.profile(inputs, repeats=_REPEATS)}
            process.pause()
            names = {name: row.calls for name, row in inside.items()}
            turns.append(
                {
                    name: (
                        row.seconds,
                        alone[name].seconds,
                        (peaks[name]() if name in peaks else None) or math.nan,
                    )
                    for name, row in inside.items()
                }
            )
    around = [turn.pop(AROUND)[0] for turn in turns]
    del names[AROUND]
    times = np.array([list(turn.values()) for turn in turns])  # turns, kernels, kinds of times
    sums = times.sum(axis=1)
    shares = np.median(np.array(list(names.values())) * times[..., 2] / times[..., 1], axis=0)
    medians = np.median(times, axis=0)
    kernels = [
        ProfiledKernel(
            name=name,
            calls=calls,
            seconds=inside,
            alone_seconds=alone,
            peak_share=None if math.isnan(share) else share,
        )
        for (name, calls), (inside, alone, _), share in zip(
            names.items(), medians.tolist(), shares.tolist(), strict=True
        )
    ]
    return Profile(
        kernels=tuple(sorted(kernels, key=lambda kernel: -kernel.seconds)),
        around_seconds=float(np.median(around)),
        ratio=float(np.median(sums[:, 0] / sums[:, 1])),
    )


def show(profiles: Mapping[str, Profile], *, as_json: bool) -> None:
    """Print the profile of each bucket as a table, or all as one JSON object."""
    if as_json:
        results = {name: attrs.asdict(profile) for name, profile in profiles.items()}
        click.echo(json.dumps(results.get("", {"buckets": results})))
        return
    header = ("kernel", "calls", "in the network", "alone", "ratio", "share of peak")
    for bucket, profile in profiles.items():
        if bucket:
            click.echo(f"bucket {bucket}")
        rows = [
            (
                kernel.name,
                str(kernel.calls),
                duration(kernel.seconds),
                duration(kernel.alone_seconds),
                f"{kernel.seconds / kernel.alone_seconds:.2f}",
                "-" if kernel.peak_share is None else f"{kernel.peak_share:.0%}",
            )
            for kernel in profile.kernels
        ]
        print_table(header, rows)
        inside = sum(kernel.seconds for kernel in profile.kernels)
        click.echo(
            f"All kernels take {duration(inside)} in the network, {profile.ratio:.2f} times as "
            f"long as alone. The rest of an inference takes {duration(profile.around_seconds)}."
        )
