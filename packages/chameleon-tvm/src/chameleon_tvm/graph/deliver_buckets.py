"""Makes one folder of the winners of a run, with a verified network for each bucket of shapes."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np
import structlog
from chameleon_core.loop.end.rivals import FLOAT32, fastest_like
from chameleon_core.stages import Arrays, Delivery
from chameleon_core.task import Task

from chameleon_tvm.graph.deliver import replace, verified
from chameleon_tvm.graph.delivery_steps import DeliverySteps
from chameleon_tvm.graph.dispatch import BucketShapes, PaddingProbe, dispatch_table
from chameleon_tvm.graph.kernels import Kernels
from chameleon_tvm.graph.package import (
    check_compiler,
    check_target,
    read_manifest,
    write_loader,
    write_manifest,
)
from chameleon_tvm.graph.padding import WAY_OUT, padding_problem
from chameleon_tvm.graph.processes import NetworkProcess, delivered_process
from chameleon_tvm.graph.reduced_rivals import reduced_of_all
from chameleon_tvm.graph.shared_weights import share_weights
from chameleon_tvm.graph.verify import Run, compared

if TYPE_CHECKING:
    from chameleon_tvm.frontends.bucketed import BucketedFrontend

log = structlog.get_logger()

_SHARED = ("format", "target", "cpu_features", "threads", "versions", "system")
"""What the manifests of all buckets say alike."""


Results = Mapping[str, dict[str, Any]]
"""What ``deliver.verified`` says about each bucket, and what is added to it."""


def delivered(frontend: BucketedFrontend, delivery: Delivery) -> dict[str, Any]:
    """Compile, verify and time a network in each of its buckets.

    Nothing gets into the folder unless every bucket gives the right answers, padded inputs among
    them. What they take is written into the manifest later.

    Args:
        frontend: the network.
        delivery: what to compile it with, and where to.

    Returns:
        See ``Frontend.deliver``; ``buckets`` has a row for each.

    Raises:
        ChameleonError: a bucket cannot be compiled at all, or nothing can check it.
    """
    started = time.perf_counter()
    check_target(delivery.target)
    check_compiler()
    union = {task.key: task.name for task in frontend.named_tasks(delivery.target)}
    own: dict[str, Delivery] = {}
    called: dict[str, dict[str, str]] = {}
    for bucket, network in frontend.networks:
        tasks = {task.key: task for task in network.named_tasks(delivery.target)}
        own[bucket.name] = _own(delivery, tasks, len(frontend.networks))
        called[bucket.name] = {task.name: union[key] for key, task in tasks.items()}
    kernels: dict[str, Kernels] = {}
    results: dict[str, dict[str, Any]] = {}
    answers: dict[str, tuple[Arrays, Arrays]] = {}
    with tempfile.TemporaryDirectory(prefix="chameleon-buckets-") as scratch:
        whole = Path(scratch, "network")
        whole.mkdir()
        for bucket, network in frontend.networks:
            log.info("bucket_begun", bucket=bucket.name)
            begun = time.perf_counter()
            with contextlib.ExitStack() as stack:
                steps = DeliverySteps(network, own[bucket.name], stack)
                staged, result = verified(steps, network)
                if staged is None:
                    failure = f"bucket {bucket.name}: {result['failure']}"
                    return {**result, "failure": failure, "kernels": []}
                running = stack.enter_context(steps.running(staged))
                result["kernels"] = steps.kernel_seconds(running, staged)
                inputs = network.samples(np.random.default_rng(0))
                answers[bucket.name] = inputs, running.outputs(inputs)
                shutil.copytree(staged, whole / bucket.name)
            result["seconds"] = time.perf_counter() - begun
            kernels[bucket.name], results[bucket.name] = steps.kernels, result
        manifest = _combined(frontend, whole)
        problem = _problem(frontend, whole, answers, delivery.threads)
        if problem is not None:
            failure = f"the network is not delivered: {problem}"
            return {**summed(frontend, results, called), "failure": failure}
        replace(whole, delivery.folder)
    seconds = time.perf_counter() - started
    log.info("network_delivered", folder=str(delivery.folder), buckets=len(results))
    if frontend.options.compare:
        _time(frontend, own, kernels, results, delivery.folder)
    result = {**summed(frontend, results, called), "delivered_seconds": seconds}
    write_manifest(delivery.folder, {**manifest, "latency": result})
    return {**result, "folder": str(delivery.folder)}


def _own(delivery: Delivery, tasks: Mapping[str, Task], buckets: int) -> Delivery:
    """A delivery of one bucket: its own winners, named and weighted as in that network alone.

    Args:
        delivery: of all buckets.
        tasks: of the bucket by ``Task.key``.
        buckets: how many there are; each has its share of the time that comparing may take.
    """
    winners = [
        attrs.evolve(winner, task=tasks[winner.task.key])
        for winner in delivery.winners
        if winner.task.key in tasks
    ]
    plan = attrs.evolve(delivery.plan, seconds=delivery.plan.seconds / buckets)
    return attrs.evolve(delivery, winners=winners, plan=plan)


def _combined(frontend: BucketedFrontend, whole: Path) -> dict[str, Any]:
    """Make one network of the buckets' folders; returns its manifest."""
    folders = {bucket.name: whole / bucket.name for bucket, _ in frontend.networks}
    saved = share_weights(whole, folders)
    manifests = {name: read_manifest(folder) for name, folder in folders.items()}
    shapes = [
        BucketShapes(
            name=bucket.name,
            extents=bucket.extents,
            inputs=[one["shape"] for one in manifests[bucket.name]["inputs"]],
            outputs=[one["shape"] for one in manifests[bucket.name]["outputs"]],
        )
        for bucket, _ in frontend.networks
    ]
    first = manifests[shapes[0].name]
    manifest = {
        **{name: first[name] for name in _SHARED},
        "shared_bytes": saved,
        **dispatch_table(frontend, [one["dtype"] for one in first["inputs"]], shapes),
    }
    write_loader(whole)
    write_manifest(whole, manifest)
    return manifest


def _problem(
    frontend: BucketedFrontend,
    whole: Path,
    answers: Mapping[str, tuple[Arrays, Arrays]],
    threads: int,
) -> str | None:
    """What is wrong with the answers of the network in all buckets, if anything.

    Args:
        frontend: the network.
        whole: its folder.
        answers: inputs of each bucket, and the outputs of the bucket when it was alone.
        threads: that it computes with.
    """
    with delivered_process("the compiled network", whole, threads=threads) as process:
        for bucket, (inputs, expected) in answers.items():
            verdict = compared(process.outputs, [inputs], [expected])
            if verdict.problem is not None:
                return f"bucket {bucket} is not what it was alone: {verdict.problem}"

        def run_of(_: PaddingProbe, __: Arrays, ___: Arrays, ____: list[NetworkProcess]) -> Run:
            return process.outputs

        padding = padding_problem(frontend, threads, run_of)
    return None if padding is None else f"{padding}. {WAY_OUT}"


def _time(
    frontend: BucketedFrontend,
    own: Mapping[str, Delivery],
    kernels: Mapping[str, Kernels],
    results: Results,
    folder: Path,
) -> None:
    """Add the latencies of each bucket to what is known about it.

    The network is timed as it is delivered, choosing the bucket included.
    """
    for bucket, network in frontend.networks:
        with contextlib.ExitStack() as stack:
            steps = DeliverySteps(network, own[bucket.name], stack)
            steps.kernels = kernels[bucket.name]
            ours = stack.enter_context(steps.running(folder))
            results[bucket.name].update(steps.latencies(ours))


def summed(
    frontend: BucketedFrontend, results: Results, called: Mapping[str, Mapping[str, str]]
) -> dict[str, Any]:
    """One inference of each bucket together, and a row for each.

    Args:
        frontend: the network.
        results: of all buckets.
        called: of each bucket what the run calls its tasks, where several buckets have different
            ones of one name.
    """
    others = list(dict.fromkeys(name for one in results.values() for name in one["rivals"]))
    everywhere = [name for name in others if all(name in one["rivals"] for one in results.values())]
    left_out = {
        name: f"bucket {bucket}: {why}"
        for bucket, one in results.items()
        for name, why in one.get("left_out", {}).items()
    }
    rows = []
    kernels: dict[tuple[str, bool], dict[str, Any]] = {}
    unmeasured: dict[str, dict[str, str]] = {}
    for bucket, _ in frontend.networks:
        one = results[bucket.name]
        fastest = fastest_like(one.get("precision", FLOAT32), one)
        latency = one["latency_seconds"]
        rows.append(
            {
                "name": bucket.name,
                "shapes": {name: list(shape) for name, shape in bucket.shapes.items()},
                "latency_seconds": latency,
                "untuned_seconds": one["untuned_seconds"],
                "rivals": one["rivals"],
                "ratio": fastest[1] / latency if fastest and latency else None,
                "max_relative_error": one["max_relative_error"],
                "seconds": one["seconds"],
                "layout": one["layout"]["layout"],
                **({"rivals_reduced": one["rivals_reduced"]} if "rivals_reduced" in one else {}),
            }
        )
        names = called[bucket.name]
        for kernel in one["kernels"]:
            name = names.get(kernel["name"], kernel["name"]) if kernel["tuned"] else kernel["name"]
            entry = kernels.setdefault(
                (name, kernel["tuned"]), {**kernel, "name": name, "calls": 0, "seconds": 0.0}
            )
            entry["calls"] += kernel["calls"]
            entry["seconds"] += kernel["seconds"]
        for task in one["unmeasured"]:
            name = names.get(task["name"], task["name"])
            unmeasured.setdefault(name, {**task, "name": name})
    return {
        "latency_seconds": _sum(one["latency_seconds"] for one in results.values()),
        "untuned_seconds": _sum(one["untuned_seconds"] for one in results.values()),
        "rivals": {
            name: sum(one["rivals"][name] for one in results.values()) for name in everywhere
        },
        "max_relative_error": max(one["max_relative_error"] for one in results.values()),
        "reference": next(iter(results.values()))["reference"],
        "layout": _layouts(results),
        "kernels": sorted(kernels.values(), key=lambda kernel: -float(kernel["seconds"])),
        "unmeasured": list(unmeasured.values()),
        "left_out": left_out,
        "buckets": rows,
        "failure": None,
        **reduced_of_all(list(results.values())),
    }


def _sum(seconds: Iterable[float | None]) -> float | None:
    """The sum; None where one is not known."""
    known = list(seconds)
    return None if None in known else sum(one for one in known if one is not None)


def _layouts(results: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The layout of each bucket, and a sentence."""
    chosen = {name: one["layout"]["layout"] for name, one in results.items()}
    if len(set(chosen.values())) == 1:
        told = f"{next(iter(chosen.values()))} in each bucket"
    else:
        told = ", ".join(f"{layout} in bucket {name}" for name, layout in chosen.items())
    return {"buckets": chosen, "summary": told}
