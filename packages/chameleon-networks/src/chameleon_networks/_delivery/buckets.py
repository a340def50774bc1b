"""Delivers a network for several shapes: one folder with a verified network per bucket."""

from __future__ import annotations

import contextlib
import copy
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import attrs
import numpy as np
import structlog
from chameleon_core.api import NetworkResult
from chameleon_core.plugin_api import FLOAT32, Arrays, ChameleonError, Delivery, Task
from chameleon_system.api import temporary_folder
from chameleon_tvm.api import chosen_types, one_line, types_in_words

from chameleon_networks._artifact.dispatch import (
    PaddingTest,
    all_padding_tests,
    dispatch_table,
    padding_tests,
    timed_extents,
)
from chameleon_networks._artifact.load import Manifest, inner_folders
from chameleon_networks._artifact.shared_weights import share_weights
from chameleon_networks._artifact.sources import sources_for
from chameleon_networks._artifact.writer import (
    BUCKETS_CODE,
    read_manifest,
    write_loader,
    write_manifest,
)
from chameleon_networks._checks.padding import WAY_OUT, padding_problem
from chameleon_networks._comparison.reduced_precision import sum_reduced_times
from chameleon_networks._compile.kernels import Kernels
from chameleon_networks._delivery.deliver import replace, verified
from chameleon_networks._delivery.delivery_steps import DeliverableNetwork, DeliverySteps
from chameleon_networks._delivery.kernel_choice import REASON, with_shared_packings
from chameleon_networks._delivery.levels import (
    MEASURED,
    Configurations,
    add_levels,
    keep_common_levels,
    remove_levels,
    shared_orders,
)
from chameleon_networks._delivery.mixed_precision.delivery import choose_dtypes, precision_facts
from chameleon_networks._delivery.vector_kernels import add_vector_kernels
from chameleon_networks._evaluation.processes import NetworkProcess, delivered_process
from chameleon_networks._evaluation.verify import compare
from chameleon_networks._importers.imported_network import BucketedNetwork, ImportedNetwork
from chameleon_networks._names import signature_with_names

Results = Mapping[str, NetworkResult]
"""The result of each bucket, by the name of the bucket."""

Padded = Sequence[tuple[PaddingTest, NetworkResult]]
"""Extents between those of two buckets, each with its result."""


def summed(
    bucketed: BucketedNetwork,
    results: Results,
    called: Mapping[str, Mapping[str, str]],
    between: Padded = (),
) -> NetworkResult:
    """Sum the results of one inference in each bucket, and keep a row for each bucket.

    Inferences with padded inputs have rows too. The network of a range is timed at some extents
    alone, so its times are sums over these.
    """
    every = list(results.values())
    timed = every
    if bucketed.is_open:
        with_between = [*every, *(result for _, result in between)]
        timed = [own for own in with_between if own.latency_seconds is not None] or every
    left_out = {
        name: f"bucket {bucket}: {why}"
        for bucket, result in results.items()
        for name, why in result.left_out.items()
    }
    rows: list[NetworkResult.Bucket] = []
    kernels: dict[tuple[str, bool], NetworkResult.Kernel] = {}
    unmeasured: dict[str, NetworkResult.Unmeasured] = {}
    for bucket, _ in bucketed.networks:
        result, names = results[bucket.name], called[bucket.name]
        row = NetworkResult.Bucket.of(
            result,
            name=bucket.name,
            shapes={name: tuple(shape) for name, shape in bucket.shapes.items()},
            seconds=result.delivered_seconds or 0.0,
            layout=result.layout.layout if result.layout else "",
        )
        rows.append(row)
        for kernel in result.kernels:
            name = names.get(kernel.name, kernel.name) if kernel.tuned else kernel.name
            key = name, kernel.tuned
            before = kernels.get(key, attrs.evolve(kernel, name=name, calls=0, seconds=0.0))
            calls, took = before.calls + kernel.calls, before.seconds + kernel.seconds
            kernels[key] = attrs.evolve(before, calls=calls, seconds=took)
        for task in result.unmeasured:
            name = names.get(task.name, task.name)
            unmeasured.setdefault(name, attrs.evolve(task, name=name))
    for probe, result in between:
        shapes = bucketed.with_extents(probe.asked).shapes
        rows.append(NetworkResult.Bucket.of(result, name=probe.words, shapes=shapes))
    whole = NetworkResult(
        latency_seconds=_sum(result.latency_seconds for result in timed),
        untuned_seconds=_sum(result.untuned_seconds for result in timed),
        rivals={
            name: sum(result.rivals[name] for result in timed)
            for name in timed[0].rivals
            if all(name in result.rivals for result in timed)
        },
        rivals_precision=timed[0].rivals_precision,
        rivals_reduced=sum_reduced_times(timed),
        max_relative_error=max(result.max_relative_error or 0.0 for result in every),
        reference=every[0].reference,
        disagreement=_each({name: result.disagreement for name, result in results.items()}),
        unverified=_each({name: result.unverified for name, result in results.items()}),
        conditioning=_each({name: result.conditioning for name, result in results.items()}),
        vectors=_each({name: result.vectors for name, result in results.items()}),
        levels=_each({name: result.levels for name, result in results.items()}),
        layout=_layouts(rows),
        kernels=tuple(sorted(kernels.values(), key=lambda kernel: -kernel.seconds)),
        unmeasured=tuple(unmeasured.values()),
        left_out=left_out,
        buckets=tuple(rows),
    )
    return _with_types(whole, results)


def _with_types(whole: NetworkResult, results: Results) -> NetworkResult:
    """Add the dtypes of each bucket and of all together, if dtypes were chosen."""
    summary = _each({name: result.precision_summary for name, result in results.items()})
    if summary is None:
        return whole
    front = [
        attrs.evolve(point, bucket=name) for name, own in results.items() for point in own.front
    ]
    # A bucket without a front stays in float32, because no dtypes could be chosen.
    kinds = [FLOAT32 for result in results.values() if not result.front]
    kinds += [kind for point in front if point.delivered for kind in point.types]
    return attrs.evolve(
        whole,
        precision=types_in_words(kinds),
        precisions=chosen_types(kinds),
        precision_summary=summary,
        front=tuple(front),
    )


def _each(sentences: Mapping[str, str | None]) -> str | None:
    """Join the sentences about buckets to one; None if there are none."""
    buckets: dict[str, list[str]] = {}
    for name, words in sentences.items():
        if words:
            buckets.setdefault(words, []).append(name)
    parts = (f"bucket {', '.join(names)}: {words}" for words, names in buckets.items())
    return "; ".join(parts) or None


def _sum(seconds: Iterable[float | None]) -> float | None:
    """The sum of seconds, or None if one of them is None."""
    known = list(seconds)
    return None if None in known else sum(number for number in known if number is not None)


def _layouts(rows: Iterable[NetworkResult.Bucket]) -> NetworkResult.Layout:
    """The layout of each bucket, with a sentence about all of them."""
    chosen = {row.name: row.layout for row in rows if row.layout}
    if len(set(chosen.values())) == 1:
        summary = f"{next(iter(chosen.values()))} in each bucket"
    else:
        summary = ", ".join(f"{layout} in bucket {name}" for name, layout in chosen.items())
    return NetworkResult.Layout(buckets=chosen, summary=summary)


log = structlog.get_logger()

_SHARED = ("format", "target", "cpu_features", "threads", "versions", "system")
"""The entries that are the same in the manifests of all buckets."""


def delivered(
    bucketed: BucketedNetwork,
    settled: Mapping[str, DeliverableNetwork],
    named_tasks: Callable[[str], list[Task]],
    delivery: Delivery,
) -> NetworkResult:
    """Deliver the network of each bucket into one folder if all outputs are right."""
    started = time.perf_counter()
    chosen = {winner.task.key: winner for winner in delivery.winners}
    winners = with_shared_packings(delivery.winners, delivery.space)
    delivery = attrs.evolve(delivery, winners=winners)
    unmeasured = {
        winner.task.key: REASON
        for winner in winners
        if chosen[winner.task.key].measured and not winner.measured
    }
    orders = shared_orders([network.network for network in settled.values()], delivery)
    union = {task.key: task.name for task in named_tasks(delivery.target)}
    called: dict[str, dict[str, str]] = {}
    *_, largest = settled.values()
    buckets: dict[str, _Bucket] = {}
    for name, network in settled.items():
        tasks = {task.key: task for task in network.named_tasks(delivery.target)}
        called[name] = {task.name: union[key] for key, task in tasks.items()}
        # On a CPU without tiles, the kernels of the largest bucket compute smaller calls as well.
        smaller = name != bucketed.networks[-1][0].name and all(
            own.dimension is not None for own in (network, largest)
        )
        own = _own(delivery, tasks, len(settled))
        buckets[name] = _Bucket(network, own, unmeasured, orders, has_vectors=not smaller)
    with temporary_folder() as scratch:
        whole = plain = Path(scratch, "network")
        padded = any(dimension.padded for dimension in bucketed.dimensions)
        if padded and any(network.precision is not None for network in settled.values()):
            # Errors of padding and errors of reduced dtypes look alike. The check of padding
            # therefore uses the network without reduced dtypes.
            plain = Path(scratch, "plain")
        for name, bucket in buckets.items():
            log.info("bucket_begun", bucket=name)
            bucket.compile(whole / name, plain / name)
            if bucket.result.failure is not None:
                failure = f"bucket {name}: {bucket.result.failure}"
                return attrs.evolve(bucket.result, failure=failure)
        results = {name: bucket.result for name, bucket in buckets.items()}
        left_out = keep_common_levels([whole / name for name in buckets])
        [_, first], *_ = bucketed.networks
        manifest = {**_combined(bucketed, whole), **sources_for(delivery.folder, first.sources)}
        write_manifest(whole, manifest)
        if plain != whole:
            _combined(bucketed, plain)
        problem = _problem(bucketed, whole, plain, buckets, delivery.threads)
        if problem is not None:
            failure = f"the network is not delivered: {problem}"
            return attrs.evolve(summed(bucketed, results, called), failure=failure)
        left_out |= _remove_wrong_levels(bucketed, whole, delivery.threads)
        manifest = read_manifest(whole)
        replace(whole, delivery.folder)
    seconds = time.perf_counter() - started
    log.info("network_delivered", folder=str(delivery.folder), buckets=len(results))
    between: Padded = ()
    if bucketed.options.compare:
        results, between = _timed(bucketed, buckets, delivery.folder)
    total = summed(bucketed, results, called, between)
    sentences = [total.levels, *(f"no bucket has {n}, since {why}" for n, why in left_out.items())]
    levels = "; ".join(filter(None, sentences)) or None
    result = attrs.evolve(total, delivered_seconds=seconds, levels=levels)
    if result.precision_summary:
        manifest["precision"] = precision_facts(result)
    write_manifest(delivery.folder, {**manifest, "latency": result.to_json()})
    return attrs.evolve(result, folder=str(delivery.folder))


def _timed(
    bucketed: BucketedNetwork, buckets: Mapping[str, _Bucket], folder: Path
) -> tuple[dict[str, NetworkResult], Padded]:
    """Time the network in its buckets and between them, or only at the probes of ranges."""
    results = {name: bucket.result for name, bucket in buckets.items()}
    probes = {probe.asked: probe for probe in timed_extents(bucketed.dimensions)}
    names = {bucket.extents: bucket.name for bucket, _ in bucketed.networks}
    for extents, name in names.items():
        if probes.pop(extents, None) is not None or not bucketed.is_open:
            results[name] = buckets[name].timed(folder, untuned=not bucketed.is_open)
    # An inference without tuning takes seconds at the largest extents.
    return results, [
        (
            probe,
            buckets[names[probe.padded]].timed(
                folder, bucketed.with_extents(asked), untuned=not bucketed.is_open
            ),
        )
        for asked, probe in probes.items()
    ]


@attrs.define(eq=False)
class _Bucket:
    """The network of one bucket.

    Attributes:
        delivery: The bucket's share of the delivery.
        unmeasured: Why kernels are used that were not measured, by ``Task.key``.
        orders: Configurations of kernels for levels (``shared_orders``).
        has_vectors: Whether kernels are added for CPUs without tiles.
        kernels: The kernels that the network is compiled with.
        inputs: Inputs of one inference.
        outputs: The outputs for these inputs, if the network may be delivered.
    """

    settled: DeliverableNetwork
    delivery: Delivery
    unmeasured: Mapping[str, str]
    orders: Configurations
    has_vectors: bool = attrs.field(kw_only=True)
    result: NetworkResult = attrs.field(init=False)
    kernels: Kernels = attrs.field(init=False)
    inputs: Arrays = attrs.field(init=False)
    outputs: Arrays = attrs.field(init=False)

    def compile(self, folder: Path, plain: Path) -> None:
        """Compile and verify the network."""
        start_time = time.perf_counter()
        self.inputs = self.settled.network.samples(np.random.default_rng(0))
        with contextlib.ExitStack() as stack:
            steps = DeliverySteps(self.settled, self.delivery, stack)
            steps.replaced |= self.unmeasured
            staged, self.result = verified(steps, self.settled)
            self.kernels = steps.kernels
            if staged is None:
                return
            if plain != folder:
                shutil.copytree(staged, plain)
            staged, result = choose_dtypes(steps, self.settled.precision, staged, self.result)
            if self.has_vectors:
                result = attrs.evolve(result, vectors=add_vector_kernels(steps, staged))
            result = attrs.evolve(result, levels=add_levels(steps, staged, self.orders))
            running = stack.enter_context(steps.running(staged))
            kernels = steps.kernel_seconds(running)
            self.outputs = running.outputs(self.inputs)
            shutil.copytree(staged, folder)
        seconds = time.perf_counter() - start_time
        self.result = attrs.evolve(result, kernels=kernels, delivered_seconds=seconds)

    def timed(
        self, folder: Path, padded: ImportedNetwork | None = None, *, untuned: bool = True
    ) -> NetworkResult:
        """Time the delivered network, which chooses the bucket at each call, beside its rivals.

        The inputs are those of the bucket, or of a network whose inputs are padded to the bucket.
        """
        settled, result = copy.copy(self.settled), self.result
        settled.network = padded or settled.network
        with contextlib.ExitStack() as stack:
            steps = DeliverySteps(settled, self.delivery, stack)
            steps.kernels = self.kernels
            steps.baselines.times_untuned = untuned
            ours = stack.enter_context(steps.running(folder))
            if padded is not None:
                verdict = steps.expected.verdict(ours.outputs)
                result = attrs.evolve(result, max_relative_error=verdict.max_relative_error)
            return steps.timed(result, ours)


def _own(delivery: Delivery, tasks: Mapping[str, Task], buckets: int) -> Delivery:
    """The delivery of one bucket: the winners of its tasks, with the bucket's names and weights."""
    winners = [
        attrs.evolve(winner, task=tasks[winner.task.key])
        for winner in delivery.winners
        if winner.task.key in tasks
    ]
    plan = attrs.evolve(
        delivery.plan,
        seconds=delivery.plan.seconds / buckets,
        most_seconds=delivery.plan.most_seconds / buckets,
    )
    return attrs.evolve(delivery, winners=winners, plan=plan)


def _combined(bucketed: BucketedNetwork, whole: Path) -> Manifest:
    """Combine the folders of the buckets to one network, and return its manifest."""
    folders = {bucket.name: whole / bucket.name for bucket, _ in bucketed.networks}
    manifests = {name: read_manifest(folder) for name, folder in folders.items()}
    others = [folders[name] / own for name in folders for own in inner_folders(manifests[name])]
    saved = share_weights(whole, [*folders.values(), *others])
    manifests = {name: read_manifest(folder) for name, folder in folders.items()}
    described = [
        (bucket.name, bucket.extents, manifests[bucket.name]) for bucket, _ in bucketed.networks
    ]
    (_, _, first), (_, network) = described[0], bucketed.networks[0]
    table = dispatch_table(bucketed, described)
    manifest = {
        **{name: first[name] for name in _SHARED},
        "shared_bytes": saved,
        **table,
        **signature_with_names(
            _open_signature(table, first), bucketed.input_names, network.returned
        ),
    }
    *_, largest = manifests.values()
    if "levels" in largest:
        manifest["levels"] = largest["levels"]
    write_loader(whole, BUCKETS_CODE)
    write_manifest(whole, manifest)
    return manifest


def _open_signature(table: Manifest, first: Manifest) -> Mapping[str, list[Manifest]]:
    """The inputs and outputs of all buckets; a shape has names of dimensions for open extents."""
    signature = {
        key: [{**tensor, "shape": list(tensor["shape"])} for tensor in first[key]]
        for key in ("inputs", "outputs")
    }
    for bucket in table["buckets"]:
        for tensor, extents in zip(signature["outputs"], bucket["outputs"], strict=True):
            pairs = zip(tensor["shape"], extents, strict=False)
            tensor["shape"] = [own if own == extent else "?" for own, extent in pairs]
    for dimension in table["dimensions"]:
        name = dimension["name"]
        for number, axis, _ in dimension["axes"]:
            signature["inputs"][number]["shape"][axis] = name
        for number, axis, factor, *steps in dimension["outputs"]:
            extent = name if factor == 1 else f"{factor} * {name}"
            for more, stride in steps:
                extent = f"({extent}{more:+})" if more else extent
                extent = extent if stride == 1 else f"{extent} // {stride}"
            signature["outputs"][number]["shape"][axis] = extent
    return signature


def _problem(
    bucketed: BucketedNetwork,
    whole: Path,
    plain: Path,
    buckets: Mapping[str, _Bucket],
    threads: int,
) -> str | None:
    """A sentence if the combined network computes other outputs than its buckets do, or None."""
    with delivered_process("the compiled network", whole, threads=threads) as process:
        for name, bucket in buckets.items():
            verdict = compare(process.outputs, [bucket.inputs], [bucket.outputs])
            if verdict.problem is not None:
                return f"bucket {name} is not what it was alone: {verdict.problem}"
        if plain == whole:
            return _changed_by_padding(bucketed, process, threads)
    with delivered_process("the network without types", plain, threads=threads) as process:
        return _changed_by_padding(bucketed, process, threads)


def _remove_wrong_levels(bucketed: BucketedNetwork, whole: Path, threads: int) -> dict[str, str]:
    """Check calls that compute a part of their bucket; remove wrong levels, and return why.

    Kernels that compute whole buckets were checked with the bucket.
    """
    manifest = read_manifest(whole)
    problems: dict[str, str] = {}
    if not any(bucket["is_open"] for bucket in manifest["buckets"]):
        return problems
    tests = padding_tests(bucketed.dimensions) or all_padding_tests(bucketed)
    rows = manifest.get("levels", ())
    for name in (row["name"] for row in rows if row["checked"] == MEASURED):
        try:
            with delivered_process(name, whole, threads=threads, level=name) as process:
                run = process.outputs
                _, problem = padding_problem(bucketed, tests, threads, lambda *_, run=run: run)
        except ChameleonError as error:
            problem = one_line(error)
        if problem is not None:
            log.warning("level_not_delivered", level=name, problem=problem)
            problems[name] = problem
    for folder in (whole, *(whole / bucket["folder"] for bucket in manifest["buckets"])):
        remove_levels(folder, problems)
    return problems


def _changed_by_padding(
    bucketed: BucketedNetwork, process: NetworkProcess, threads: int
) -> str | None:
    """A sentence that says how padding changes a network's outputs, or None."""
    checked = bucketed.padding_checked
    tests = padding_tests(bucketed.dimensions) if checked else all_padding_tests(bucketed)
    _, problem = padding_problem(bucketed, tests, threads, lambda *_: process.outputs)
    return None if problem is None else f"{problem}. {WAY_OUT}"
