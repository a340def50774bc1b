"""What is said of a network in buckets of shapes: sums, and a row for each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs
from chameleon_core.dtypes import FLOAT32
from chameleon_core.network_result import (
    BucketResult,
    InferenceResult,
    KernelTime,
    LayoutResult,
    NetworkResult,
    Unmeasured,
)
from chameleon_tvm.words import chosen_types, types_in_words

from chameleon_networks.delivery.reduced_rivals import reduced_of_all
from chameleon_networks.importers.bucketed_network import BucketedNetwork

Results = Mapping[str, NetworkResult]
"""By the name of each bucket."""


def summed(
    bucketed: BucketedNetwork, results: Results, called: Mapping[str, Mapping[str, str]]
) -> NetworkResult:
    """One inference of each bucket together, and a row for each.

    Args:
        bucketed: the network.
        results: of all buckets.
        called: of each bucket what the run calls its tasks, where several buckets have different
            ones of one name.
    """
    every = list(results.values())
    left_out = {
        name: f"bucket {bucket}: {why}"
        for bucket, result in results.items()
        for name, why in result.left_out.items()
    }
    rows: list[BucketResult] = []
    kernels: dict[tuple[str, bool], KernelTime] = {}
    unmeasured: dict[str, Unmeasured] = {}
    for bucket, _ in bucketed.networks:
        result, names = results[bucket.name], called[bucket.name]
        row = BucketResult(
            name=bucket.name,
            shapes={name: tuple(shape) for name, shape in bucket.shapes.items()},
            seconds=result.delivered_seconds or 0.0,
            layout=result.layout.layout if result.layout else "",
            **{name: getattr(result, name) for name in attrs.fields_dict(InferenceResult)},
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
    whole = NetworkResult(
        latency_seconds=_sum(result.latency_seconds for result in every),
        untuned_seconds=_sum(result.untuned_seconds for result in every),
        rivals={
            name: sum(result.rivals[name] for result in every)
            for name in every[0].rivals
            if all(name in result.rivals for result in every)
        },
        rivals_precision=every[0].rivals_precision,
        rivals_reduced=reduced_of_all(every),
        max_relative_error=max(result.max_relative_error or 0.0 for result in every),
        reference=every[0].reference,
        conditioning=_each({name: one.conditioning for name, one in results.items()}),
        layout=_layouts(rows),
        kernels=tuple(sorted(kernels.values(), key=lambda kernel: -kernel.seconds)),
        unmeasured=tuple(unmeasured.values()),
        left_out=left_out,
        buckets=tuple(rows),
    )
    return _with_types(whole, results)


def _with_types(whole: NetworkResult, results: Results) -> NetworkResult:
    """With the types of all buckets together and of each; the same if none were chosen."""
    summary = _each({name: one.precision_summary for name, one in results.items()})
    if summary is None:
        return whole
    front = [
        attrs.evolve(point, bucket=name) for name, one in results.items() for point in one.front
    ]
    # Without a front types could not be chosen.
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
    """Sentences about buckets as one; None without any."""
    told = (f"bucket {name}: {words}" for name, words in sentences.items() if words)
    return "; ".join(told) or None


def _sum(seconds: Iterable[float | None]) -> float | None:
    """The sum; None where one is not known."""
    known = list(seconds)
    return None if None in known else sum(one for one in known if one is not None)


def _layouts(rows: Iterable[BucketResult]) -> LayoutResult:
    """The layout of each bucket, and a sentence."""
    chosen = {row.name: row.layout for row in rows}
    if len(set(chosen.values())) == 1:
        told = f"{next(iter(chosen.values()))} in each bucket"
    else:
        told = ", ".join(f"{layout} in bucket {name}" for name, layout in chosen.items())
    return LayoutResult(buckets=chosen, summary=told)
