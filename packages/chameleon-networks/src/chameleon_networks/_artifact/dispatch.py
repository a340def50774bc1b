"""Makes the table from which the loader of a network chooses the bucket for given inputs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Sequence
from typing import Any

import attrs
from chameleon_core.plugin_api import ConfigError

from chameleon_networks._artifact.buckets import Buckets, after
from chameleon_networks._artifact.load import Manifest
from chameleon_networks._artifact.writer import signature_of
from chameleon_networks._compile.prepared_networks import prepared_network
from chameleon_networks._importers.imported_network import BucketedNetwork, Steps
from chameleon_networks._shapes import Dimension

BucketSignature = tuple[str, Sequence[int], Manifest]
"""A bucket: its name, one extent for each dimension, and the signature of its network. The
signature has ``inputs`` and ``outputs``, as a manifest or ``signature_of`` has them."""


def dispatch_table(bucketed: BucketedNetwork, buckets: Sequence[BucketSignature]) -> Manifest:
    """The part of a manifest from which a loaded network chooses a bucket, as JSON values."""
    names, (_, _, first) = bucketed.input_names, buckets[0]
    return {
        "inputs": [
            {"name": name, "dtype": tensor["dtype"]}
            for name, tensor in zip(names, first["inputs"], strict=True)
        ],
        "dimensions": [
            {
                "name": str(dimension),
                "buckets": list(dimension.buckets),
                "axes": [[names.index(a.input), a.axis, a.pad] for a in dimension.axes],
                "outputs": _outputs(index, buckets, bucketed.output_steps),
            }
            for index, dimension in enumerate(bucketed.dimensions)
        ],
        "buckets": [
            {
                "name": name,
                "folder": name,
                "inputs": _shapes(signature["inputs"]),
                "outputs": _shapes(signature["outputs"]),
                "is_open": signature.get("is_open", False),
                "needs_tiles": "permissions" in signature
                and signature.keys().isdisjoint({"vectors", "levels"}),
            }
            for name, _, signature in buckets
        ],
    }


def _shapes(tensors: Sequence[Manifest]) -> list[list[int]]:
    return [list(tensor["shape"]) for tensor in tensors]


def uncompiled_buckets(bucketed: BucketedNetwork) -> Buckets:
    """Make a ``Buckets`` that chooses buckets but runs none, to test padding before compilation."""
    described = [
        (bucket.name, bucket.extents, signature_of(prepared_network(network)[0]))
        for bucket, network in bucketed.networks
    ]

    def nothing(bucket: str) -> Callable[..., Any]:
        raise NotImplementedError(f"there is no network for bucket {bucket} yet")

    return Buckets(dispatch_table(bucketed, described), nothing)


def _outputs(
    dimension: int, buckets: Sequence[BucketSignature], steps: Collection[Steps]
) -> list[list[Any]]:
    """Rows for the output axes that follow from a dimension in each bucket.

    A row has the output, the axis, a factor, and the steps from the dimension's extent to that of
    the axis. These are pairs (a, s), by which n becomes (n + a) // s.
    """
    extents = [own[dimension] for _, own, _ in buckets]
    outputs = [_shapes(signature["outputs"]) for _, _, signature in buckets]
    if len(set(extents)) == 1:
        return []
    rows: list[list[Any]] = []
    for index, shape in enumerate(outputs[0]):
        others = [shapes[index] for shapes in outputs]
        if any(len(other) != len(shape) for other in others):
            continue
        for axis, first in enumerate(shape):
            sizes = [other[axis] for other in others]
            factor = first // extents[0]
            if factor and sizes == [factor * extent for extent in extents]:
                rows.append([index, axis, factor])
                continue
            fitting = (own for own in steps if sizes == [after(own, e) for e in extents])
            rows += [[index, axis, 1, *map(list, own)] for own in [*fitting][:1]]
    return rows


@attrs.frozen(kw_only=True)
class PaddingTest:
    """Extents between the extents of two buckets, to test padding with.

    Attributes:
        asked: The extent of each dimension in the inputs of a test.
        padded: The extents of the bucket that the loader chooses for ``asked``.
        words: A phrase for messages that says what is padded.
        required: Whether the framework has to run the network with the extents ``asked``.
    """

    asked: tuple[int, ...]
    padded: tuple[int, ...]
    words: str
    required: bool = True


def padding_tests(dimensions: Sequence[Dimension]) -> list[PaddingTest]:
    """Choose input extents between two buckets, for each padded dimension and for all of them.

    In a range, they are the extents at which the network is timed.
    """
    probes = _probes(dimensions)
    if probes:
        return [test for test in probes if test.words]
    between: dict[int, int] = {}
    for index, dimension in enumerate(dimensions):
        extent = _between(dimension.buckets) if dimension.padded else None
        if extent is not None:
            between[index] = extent
    groups = [[index] for index in between] + ([list(between)] if len(between) > 1 else [])
    smallest = {index: dimension.buckets[0] for index, dimension in enumerate(dimensions)}
    return [
        padding_test(
            dimensions, tuple((smallest | {index: between[index] for index in group}).values())
        )
        for group in groups
    ]


def padding_test(
    dimensions: Sequence[Dimension], asked: tuple[int, ...], **facts: Any
) -> PaddingTest:
    """A test of inputs with some extents, of which the words say which ones are padded."""
    padded = tuple(map(Dimension.bucket_of, dimensions, asked))
    words = [
        f"{dimension} {own} padded to {bucket}"
        for dimension, own, bucket in zip(dimensions, asked, padded, strict=True)
        if own != bucket
    ]
    return PaddingTest(asked=asked, padded=padded, words=" and ".join(words), **facts)


def timed_extents(dimensions: Sequence[Dimension]) -> list[PaddingTest]:
    """The extents at which a network is timed beside other frameworks, in addition to its buckets.

    A network with a range is timed at these extents alone. Otherwise, it is the middle of the
    widest gap between buckets.
    """
    return _probes(dimensions) or padding_tests(dimensions)[-1:]


def _probes(dimensions: Sequence[Dimension]) -> list[PaddingTest]:
    """Tests at the probes of ranges, from the smallest to the largest; none without a range."""
    probes = [dimension.probes or dimension.buckets[-1:] for dimension in dimensions]
    if not any(dimension.probes for dimension in dimensions):
        return []
    turns = range(max(map(len, probes)))
    extents = [tuple(own[min(turn, len(own) - 1)] for own in probes) for turn in turns]
    return [padding_test(dimensions, asked) for asked in extents]


def all_padding_tests(bucketed: BucketedNetwork) -> list[PaddingTest]:
    """``padding_tests``, and the ends and branches of each gap between the extents of buckets.

    A range may have many gaps, so Chameleon tests the ends of its first and last gap alone.
    """
    dimensions = bucketed.dimensions
    smallest = tuple(dimension.buckets[0] for dimension in dimensions)
    tests = {test.asked: test for test in padding_tests(dimensions)}
    for index, dimension in enumerate(dimensions):
        if not dimension.padded:
            continue
        every = (
            range(below + 1, above) for below, above in itertools.pairwise((0, *dimension.buckets))
        )
        gaps = [gap for gap in every if gap]
        if dimension.probes:
            extents, gaps = _branches(bucketed, index), [*gaps[:1], *gaps[-1:]]
        else:
            extents = {e for gap in gaps for e in bucketed.branch_extents(index, gap)}
        extents |= {end for gap in gaps for end in (gap[0], gap[-1])}
        for extent in extents.difference(dimension.buckets):
            asked = (*smallest[:index], extent, *smallest[index + 1 :])
            test = padding_test(dimensions, asked, required=False)
            tests.setdefault(asked, test)
    return sorted(tests.values(), key=lambda test: (test.padded, test.asked))


def _branches(bucketed: BucketedNetwork, dimension: int) -> set[int]:
    """The extents on both sides of each branch in a range, from one export for each branch."""
    extents: set[int] = set()
    end = bucketed.dimensions[dimension].buckets[-1]
    while end > 1:
        try:
            branches = bucketed.branch_extents(dimension, range(1, end))
        except ConfigError:  # the framework takes no inputs that are so small
            break
        extents |= branches
        # Below a branch, the network may have others, which this export did not meet.
        end = min(branches, default=0)
    return extents


def _between(buckets: Sequence[int]) -> int | None:
    """The middle of the widest gap between extents, or None without a gap."""
    gaps = [(below, above) for below, above in itertools.pairwise(buckets) if above - below > 1]
    if not gaps and buckets[0] > 1:
        gaps = [(0, buckets[0])]
    if not gaps:
        return None
    below, above = max(gaps, key=lambda gap: (gap[1] - gap[0], gap))
    return (below + above) // 2
