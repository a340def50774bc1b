"""What is said of a network in buckets of shapes: sums, and a row for each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from chameleon_core.dtypes import FLOAT32
from chameleon_core.loop.end.network_result import fastest_like
from chameleon_tvm.words import types_in_words

from chameleon_networks.delivery.reduced_rivals import reduced_of_all
from chameleon_networks.importers.bucketed_network import BucketedNetwork

Results = Mapping[str, dict[str, Any]]
"""What ``deliver.verified`` says about each bucket, and what is added to it."""


def summed(
    bucketed: BucketedNetwork, results: Results, called: Mapping[str, Mapping[str, str]]
) -> dict[str, Any]:
    """One inference of each bucket together, and a row for each.

    Args:
        bucketed: the network.
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
    rows: list[dict[str, Any]] = []
    kernels: dict[tuple[str, bool], dict[str, Any]] = {}
    unmeasured: dict[str, dict[str, str]] = {}
    for bucket, _ in bucketed.networks:
        one = results[bucket.name]
        fastest = fastest_like(one)
        latency = one["latency_seconds"]
        more: dict[str, Any] = {
            name: one[name] for name in ("precision", "rivals_reduced") if name in one
        }
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
                **more,
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
        **_precision(results),
    }


def _precision(results: Results) -> dict[str, Any]:
    """The types of all buckets together, and those of each; nothing where none were chosen."""
    if not any("precision_summary" in one for one in results.values()):
        return {}
    front = [
        {"bucket": name, **row} for name, one in results.items() for row in one.get("front", ())
    ]
    # Where there is no front, types could not be chosen.
    kinds = [FLOAT32 for one in results.values() if not one.get("front")]
    kinds += [kind for row in front if row["delivered"] for kind in row["types"]]
    told = [f"bucket {name}: {one['precision_summary']}" for name, one in results.items()]
    return {
        "precision": types_in_words(kinds),
        "precision_summary": "; ".join(told),
        "front": front,
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
