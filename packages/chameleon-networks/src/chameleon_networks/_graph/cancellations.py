"""Estimates how much larger the rounding errors of layers are in which large products cancel.

The expected error of an algorithm is that of factors around zero. There, a sum of products is as
large as with random signs. With a large mean and filters of the sum zero, the sum is smaller. The
errors of its products are then larger beside it. See Higham, "Accuracy and Stability of Numerical
Algorithms", 2002, section 3.1.
"""

from __future__ import annotations

import hashlib
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
import structlog
from chameleon_core.plugin_api import FLOAT32, Arrays
from chameleon_tvm.api import DenseSpec, GroupedSpec, first_line
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from chameleon_networks._graph.fusion_groups import FusionGroup
from chameleon_networks._graph.operators import find_data
from chameleon_networks._graph.relax_utils import shape_of
from chameleon_networks._source_location import ImportedGraph

log = structlog.get_logger()

LEAST = 8
"""The least growth of errors that counts. Ordinary layers, which share tasks, reach a half of it.
The default of ``max_error`` allows a growth of 4 to the algorithm with the largest errors."""

MOST = 2**16
"""The largest growth. Float32 has hardly a right digit then."""

_PLACES = 64
"""Number of places of an output at which sums are computed."""

_MOST_ELEMENTS = 2**27
"""Number of elements of a network's tensors that are in memory at the same time."""

_SMALL = 1e-3
"""Errors of smaller outputs than this share of the usual ones are divided by this share."""

Values = Callable[[Sequence[str], Iterable[Arrays]], Iterator[Arrays]]
"""Yields the values of some tensors of the framework's graph, by their names, for each batch."""

_Layer = tuple[GroupedSpec | DenseSpec, NDArray[Any], NDArray[Any] | None]
"""An operator, its weights and its bias."""

Cancellations = Mapping[str, tuple[int, int]]
"""``cancellation`` and ``detail_cancellation`` (``FusedSpec``) by the digest of an operator's
weights, which names the operator in every layout and process. Missing operators have 1."""

_NONE = (1, 1)


def digest_of(weights: NDArray[Any]) -> str:
    """A digest of an operator's weights and their shape."""
    digest = hashlib.blake2b(str(weights.shape).encode(), digest_size=16)
    digest.update(np.ascontiguousarray(weights).data)
    return digest.hexdigest()


def layer_of(fusion: FusionGroup) -> tuple[GroupedSpec | DenseSpec, NDArray[Any]] | None:
    """The operator and the weights, if it has algorithms whose errors depend on the weights."""
    spec, weights = fusion.spec, fusion.constants.weights
    if weights is None or not isinstance(spec, GroupedSpec | DenseSpec) or spec.dtype != FLOAT32:
        return None
    return spec, weights


def cancellations_in(fusions: Iterable[FusionGroup]) -> Cancellations:
    """The cancellations of the operators that have any."""
    known = {}
    for spec, weights in filter(None, map(layer_of, fusions)):
        pair = spec.cancellation, spec.detail_cancellation
        if pair != _NONE:
            known[digest_of(weights)] = pair
    return known


def with_cancellations(
    fusions: Sequence[FusionGroup], cancellations: Cancellations
) -> list[FusionGroup]:
    """Fusion groups whose operators have the cancellations of their weights."""
    made = list(fusions)
    for index, fusion in enumerate(fusions if cancellations else ()):
        layer = layer_of(fusion)
        if layer is not None:
            spec, weights = layer
            products, detail = cancellations.get(digest_of(weights), _NONE)
            spec = attrs.evolve(spec, cancellation=products, detail_cancellation=detail)
            made[index] = attrs.evolve(fusion, spec=spec)
    return made


@attrs.frozen(kw_only=True, eq=False)
class Sums:
    """The largest sums of a layer for some inputs of the network.

    Attributes:
        actual: The largest |output| before the activation.
        signless: The same if the signs of all products were random, shape (2,). The second number
            is for the data without its mean over each window of a filter.
    """

    actual: float
    signless: NDArray[np.float64]


def growth(sums: Sequence[Sums]) -> NDArray[np.float64]:
    """How many times larger the errors of a layer are than those for factors around zero.

    Args:
        sums: The sums of a layer for several inputs, the first of which are of the usual size.

    Returns:
        The growth for the data, and for the data without its means; shape (2,).
    """
    least = max(_SMALL * sums[0].actual, float(np.finfo(np.float32).tiny))
    ratios: NDArray[np.float64] = np.array([one.signless / max(one.actual, least) for one in sums])
    largest: NDArray[np.float64] = ratios.max(axis=0)
    return largest


def rounded(value: float) -> int:
    """A growth as a power of two, so that layers share tasks; 1 if it is small."""
    power = 2 ** round(math.log2(min(max(value, 1.0), MOST)))
    return power if power >= LEAST else 1


def cancellations_of(
    fusions: Sequence[FusionGroup], graph: ImportedGraph, values: Values, batches: Sequence[Arrays]
) -> Cancellations:
    """Estimate the cancellations of a network's layers; empty if its framework fails.

    Args:
        fusions: The fusion groups of the network, in any layout.
        graph: The imported graph of the network.
        values: Computes intermediate values of the network by its framework.
        batches: Inputs of several inferences, the first of which are of the usual size.
    """
    readers: dict[Any, list[tuple[str, _Layer]]] = defaultdict(list)
    for fusion, data in zip(fusions, find_data(fusions, graph.module), strict=True):
        layer = layer_of(fusion)
        if data is not None and layer is not None:
            spec, weights = layer
            readers[data].append((digest_of(weights), (spec, weights, fusion.constants.bias)))
    sums: dict[str, list[Sums]] = defaultdict(list)
    try:
        for data, tensor in _tensors(list(readers), graph, values, batches):
            for digest, (spec, weights, bias) in readers[data]:
                if tensor.size == math.prod(spec.input) and np.isfinite(tensor).all():
                    sums[digest].append(sums_of(spec, tensor.reshape(spec.input), weights, bias))
    except Exception as error:  # noqa: BLE001 - of any class, by the user's code
        log.warning("errors_not_estimated", problem=first_line(error))
        return {}
    found = {digest: growth(known) for digest, known in sums.items()}
    cancellations = {digest: (rounded(a), rounded(b)) for digest, (a, b) in found.items()}
    return {digest: pair for digest, pair in cancellations.items() if max(pair) > 1}


def _tensors(
    variables: Sequence[Any], graph: ImportedGraph, values: Values, batches: Sequence[Arrays]
) -> Iterator[tuple[Any, NDArray[Any]]]:
    """Yield the variables that the framework can compute, each with its value for each batch."""
    places = {parameter: place for place, parameter in enumerate(graph.module["main"].params)}
    located = []
    for variable in variables:
        location = graph.locations.get(str(variable.name))
        if variable in places:
            yield from ((variable, inputs[places[variable]]) for inputs in batches)
        elif location is not None and location.output:
            located.append((variable, location.output))
    while located:
        ends = np.cumsum([math.prod(shape_of(variable)) for variable, _ in located])
        part = located[: max(1, int(np.searchsorted(ends, _MOST_ELEMENTS)))]
        # A network may write to its inputs.
        copies = ([array.copy() for array in inputs] for inputs in batches)
        for known in values([name for _, name in part], copies):
            yield from zip([variable for variable, _ in part], known, strict=True)
        del located[: len(part)]


def sums_of(
    spec: GroupedSpec | DenseSpec,
    data: NDArray[Any],
    weights: NDArray[Any],
    bias: NDArray[Any] | None = None,
) -> Sums:
    """The largest sums of a layer, at some places of its output.

    Args:
        spec: The layer.
        data: The data, in the logical shape ``spec.input``.
        weights: The weights, in the logical shape ``spec.filter_shape``.
        bias: The bias of each output channel.
    """
    rng = np.random.default_rng(0)
    rows = _multiplied(spec, data, rng)
    columns = np.swapaxes(weights.reshape(len(rows), -1, rows.shape[-1]), 1, 2)
    added = 0.0 if bias is None else bias.reshape(len(rows), 1, -1)
    outputs = rows @ columns + added
    taps = math.prod(spec.filter_shape[2:])
    windows = rows.reshape(*rows.shape[:2], -1, taps)
    detail = (windows - windows.mean(axis=-1, keepdims=True)).reshape(rows.shape)
    squares, signs = np.square(columns), rng.standard_normal(outputs.shape, np.float32)
    signless = [
        np.abs(np.sqrt(np.square(factors) @ squares) * signs).max()
        for factors in ([rows, detail] if taps > 1 else [rows])
    ]
    signless += [0.0] * (2 - len(signless))
    return Sums(actual=float(np.abs(outputs).max()), signless=np.array(signless, np.float64))


def _multiplied(
    spec: GroupedSpec | DenseSpec, data: NDArray[Any], rng: np.random.Generator
) -> NDArray[Any]:
    """The numbers that some outputs multiply by weights, shape (groups, outputs, products)."""
    if isinstance(spec, DenseSpec):
        return data[_places(len(data), rng)][None]
    rank, pads = spec.rank, spec.pads
    padded = np.pad(data, [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:], strict=True)])
    axes = tuple(range(2, rank + 2))
    windows = np.moveaxis(sliding_window_view(padded, spec.dilated_kernel, axes), 1, rank + 1)
    strides = (slice(None, None, stride) for stride in spec.strides)
    taps = (slice(None, None, dilation) for dilation in spec.dilations)
    windows = windows[(slice(None), *strides, slice(None), *taps)]
    places = windows.shape[: rank + 1]
    chosen = windows[np.unravel_index(_places(math.prod(places), rng), places)]
    return np.moveaxis(chosen.reshape(len(chosen), spec.group_count, -1), 1, 0)


def _places(count: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """Some of ``count`` places, among them the first and the last one, which are at borders."""
    if count <= _PLACES:
        return np.arange(count)
    return np.concatenate([[0, count - 1], rng.choice(count, _PLACES - 2)])
