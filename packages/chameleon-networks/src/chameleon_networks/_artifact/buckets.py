"""Runs a network that was compiled for several shapes.

This file is copied into the folder of such a network, beside ``load.py``.
"""

import logging
import math
import os
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Self

import numpy as np

Arrays = list[np.ndarray[Any, Any]]
Shapes = list[list[int]]
Manifest = dict[str, Any]
"""The manifest of a network, or its part about one bucket, as JSON values."""


class PaddedCall(NamedTuple):
    """The inputs of one call, padded for the bucket of shapes that computes them.

    Attributes:
        bucket: The name of the bucket.
        inputs: The inputs, padded if the bucket has larger shapes.
        cuts: The parts of the outputs that belong to the unpadded inputs. Each item is the number
            of an output, the number of its axis, and the extent to keep along that axis.
    """

    bucket: str
    inputs: Arrays
    cuts: list[tuple[int, int, int]]


class _Plan(NamedTuple):
    """How inputs of some shapes are computed, which is the same at each call with these shapes.

    Attributes:
        bucket: The bucket that computes them.
        paddings: How each input is padded; empty if the bucket has exactly these shapes.
        cuts: See ``PaddedCall``.
        extent: The part of the open dimension to compute, or 0 for all of it.
    """

    bucket: Manifest
    paddings: list["_Padding"]
    cuts: list[tuple[int, int, int]]
    extent: int


class _Padding(NamedTuple):
    """The shape of a padded input, the part that the caller's has, and the pads of the others."""

    shape: list[int]
    own: tuple[slice, ...]
    pads: list[tuple[tuple[slice, ...], Any]]

    def padded(self, tensor: Any) -> np.ndarray[Any, Any]:
        """The tensor as a part of a new array."""
        array = np.asarray(tensor)
        # `np.pad` takes longer than a small network.
        padded = np.empty(self.shape, array.dtype)
        padded[self.own] = array
        for part, pad in self.pads:
            padded[part] = pad
        return padded


class Buckets:
    """A network compiled for several shapes (buckets), as a function of its inputs.

    Each call runs the bucket of the inputs' shapes, which is loaded at its first call. If the
    network was delivered with padding, smaller inputs are padded at their ends to the next bucket,
    and the outputs are cut. The logger ``chameleon.network`` reports the bucket of each new
    combination of shapes at level INFO. The method ``plan`` returns this report for some inputs
    without computing their outputs.

    Args:
        manifest: The content of ``manifest.json``, which describes all buckets.
        opened: A function that loads the network in a bucket's folder.
        signature: The ``Signature`` of ``load.py``, which converts inputs and outputs. Without it,
            inputs are arrays in their order, and outputs are a list of arrays.

    Attributes:
        inputs: A ``TensorSpec`` for each input. An axis with several extents has its name in the
            shape.
        outputs: A ``TensorSpec`` for each output.
        again: A function without arguments that loads the network again, for copies and other
            processes.
        level: The level of CPUs whose kernels run, as that of a ``Network``.
    """

    def __init__(
        self,
        manifest: Manifest,
        opened: Callable[[str], Callable[..., Any]],
        signature: Any = None,
    ) -> None:
        self._manifest, self._signature = manifest, signature
        if signature is not None:
            self.inputs, self.outputs = signature.inputs, signature.outputs
        self.again: Callable[[], Any] | None = None
        self.level = ""
        self._opened = opened
        self._loaded: Manifest = {}
        self._loading, self._process = threading.Lock(), os.getpid()
        self._closed = False
        self._plans: dict[tuple[tuple[int, ...], ...], _Plan] = {}
        self._pads: dict[tuple[int, int], Any] = {
            (number, axis): pad
            for dimension in manifest["dimensions"]
            for number, axis, pad in dimension["axes"]
            if pad is not None
        }

    def __call__(self, /, *inputs: Any, **named: Any) -> Any:
        """Compute the outputs for one array per input, by position or by name.

        Raises:
            ValueError: No bucket fits the shapes of the inputs, or an input is missing or unknown.
        """
        signature = self._signature
        if signature is None:
            return self._computed(inputs)
        ordered = signature.ordered(inputs, named)
        arrays = list(map(signature.array, range(len(ordered)), ordered))
        return signature.packed(self._computed(arrays))

    def _computed(self, inputs: Sequence[Any]) -> Arrays:
        key = tuple(map(np.shape, inputs))
        plan = self._plans.get(key)
        if plan is None:
            shapes = self._shapes(inputs)
            plan = self._plan(shapes)
            said = self._sentence(plan.bucket, shapes)
            logging.getLogger("chameleon.network").info("%s: %s", self._shapes_text(shapes), said)
            self._plans[key] = plan
        network = self._network(plan.bucket)
        if not plan.paddings:
            result = network(*inputs)
            return result if isinstance(result, list) else [result]
        filled = list(map(_Padding.padded, plan.paddings, inputs))
        if plan.extent:
            result = network.run(network.arrays(filled), extent=plan.extent)
        else:
            result = network(*filled)
        outputs = result if isinstance(result, list) else [result]
        for number, axis, extent in plan.cuts:
            outputs[number] = outputs[number][(slice(None),) * axis + (slice(extent),)]
        # Copy the parts, because a view would keep the whole output in memory.
        return [np.array(output, order="C") for output in outputs]

    def __reduce__(self) -> Any:
        return self.again, ()

    def _network(self, bucket: Manifest) -> Any:
        if self._process != os.getpid():
            # A thread that was loading during the fork never gives this process its lock back.
            self._loading, self._process = threading.Lock(), os.getpid()
        with self._loading:
            if self._closed:
                raise RuntimeError("the network is closed")
            if bucket["name"] not in self._loaded:
                self._loaded[bucket["name"]] = self._opened(bucket["folder"])
            return self._loaded[bucket["name"]]

    @property
    def threads(self) -> int:
        """Number of threads that compute one inference."""
        return int(self._network(self._manifest["buckets"][0]).threads)

    def close(self) -> None:
        """Free the network: stop its threads and release its memory after running calls have ended.

        A second call does nothing.
        """
        self._closed = True
        for network in list(self._loaded.values()):
            network.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def padded_call(self, *inputs: Any) -> PaddedCall:
        """Choose the bucket for a call, and pad the arrays to the bucket's shapes."""
        plan = self._plan(self._shapes(inputs))
        filled = list(map(_Padding.padded, plan.paddings, inputs)) if plan.paddings else inputs
        return PaddedCall(plan.bucket["name"], list(filled), plan.cuts)

    def plan(self, /, *inputs: Any, **named: Any) -> str:
        """Say which bucket a call with these arrays would use, and how they would be padded.

        Args:
            inputs: One array for each input, as in a call.
            named: The inputs that are given by name.
        """
        ordered = inputs if self._signature is None else self._signature.ordered(inputs, named)
        shapes = self._shapes(ordered)
        return self._sentence(self._bucket(shapes), shapes)

    def _shapes(self, inputs: Sequence[Any]) -> Shapes:
        names = [wanted["name"] for wanted in self._manifest["inputs"]]
        if len(inputs) != len(names):
            raise ValueError(f"the network takes {', '.join(names)}, not {len(inputs)} arrays")
        return [list(np.shape(array)) for array in inputs]

    def _bucket(self, shapes: Shapes) -> Manifest:
        """The bucket with exactly these shapes, or the smallest that inputs can be padded to."""
        buckets = self._manifest["buckets"]
        exact = [bucket for bucket in buckets if bucket["inputs"] == shapes]
        together = all(
            len({shapes[number][axis] for number, axis, _ in dimension["axes"]}) == 1
            for dimension in self._manifest["dimensions"]
            if all(axis < len(shapes[number]) for number, axis, _ in dimension["axes"])
        )
        fitting = [entry for entry in buckets if together and self._fits(shapes, entry["inputs"])]
        if exact or fitting:
            best: Manifest = min(exact or fitting, key=lambda entry: _elements(entry["inputs"]))
            return best
        known = "; ".join(
            f"{entry['name']} ({self._shapes_text(entry['inputs'])})" for entry in buckets
        )
        way = (
            "of inputs between them only axes with a `pad` are filled up, all axes of a dimension "
            "alike"
            if self._pads
            else "with a `pad` beside its `buckets` in the pipeline, the network is delivered for "
            "inputs between them as well"
        )
        raise ValueError(f"no bucket takes {self._shapes_text(shapes)}; there are {known}; {way}")

    def _fits(self, shapes: Shapes, bucket: Shapes) -> bool:
        return all(
            len(shape) == len(wanted)
            and all(
                size == extent or ((number, axis) in self._pads and 0 < size < extent)
                for axis, (size, extent) in enumerate(zip(shape, wanted, strict=True))
            )
            for number, (shape, wanted) in enumerate(zip(shapes, bucket, strict=True))
        )

    def _plan(self, shapes: Shapes) -> _Plan:
        bucket = self._bucket(shapes)
        if bucket["inputs"] == shapes:
            return _Plan(bucket, [], [], 0)
        extent = self._called_extent(bucket, shapes) if bucket.get("is_open") else 0
        pairs = enumerate(zip(shapes, bucket["inputs"], strict=True))
        paddings = [self._padding(number, shape, padded) for number, (shape, padded) in pairs]
        return _Plan(bucket, paddings, self._cuts(shapes), extent)

    def _padding(self, number: int, shape: Sequence[int], padded: list[int]) -> _Padding:
        own = list(map(slice, shape))
        part, pads = own.copy(), []
        for axis, (has, extent) in enumerate(zip(shape, padded, strict=True)):
            if extent != has:
                part[axis] = slice(has, extent)
                pads.append((tuple(part), self._pads[number, axis]))
                part[axis] = slice(extent)
        return _Padding(padded, tuple(own), pads)

    def _called_extent(self, bucket: Manifest, shapes: Shapes) -> int:
        """The part of the open dimension that a bucket's kernels compute for these shapes."""
        pairs = (
            (_extent(dimension, shapes), _extent(dimension, bucket["inputs"]))
            for dimension in self._manifest["dimensions"]
        )
        return next(asked for asked, extent in pairs if asked != extent)

    def _cuts(self, shapes: Shapes) -> list[tuple[int, int, int]]:
        """The parts of the outputs that belong to inputs of these shapes; see ``PaddedCall``."""
        cuts = [
            (number, axis, factor * after(steps, _extent(dimension, shapes)))
            for dimension in self._manifest["dimensions"]
            for number, axis, factor, *steps in dimension["outputs"]
        ]
        if any(extent < 1 for _, _, extent in cuts):
            raise ValueError(f"{self._shapes_text(shapes)} is too small, since outputs are empty")
        return cuts

    def _sentence(self, bucket: Manifest, shapes: Shapes) -> str:
        padded = []
        for dimension in self._manifest["dimensions"]:
            asked, extent = _extent(dimension, shapes), _extent(dimension, bucket["inputs"])
            if asked == extent:
                continue
            computed = f", of which {asked} are computed" if bucket.get("is_open") else ""
            padded.append(f"{dimension['name']} {asked} is padded to {extent}{computed}")
        return " and ".join(padded) or f"bucket {bucket['name']} is run as it is"

    def _shapes_text(self, shapes: Shapes) -> str:
        names = [wanted["name"] for wanted in self._manifest["inputs"]]
        return ", ".join(f"{name} {shape}" for name, shape in zip(names, shapes, strict=True))


def _extent(dimension: Manifest, shapes: Shapes) -> int:
    number, axis, _ = dimension["axes"][0]
    extent: int = shapes[number][axis]
    return extent


def after(steps: Sequence[Sequence[int]], extent: int) -> int:
    """The extent of an output that follows from a dimension: (n + more) // stride for each step."""
    for more, stride in steps:
        extent = (extent + more) // stride
    return extent


def _elements(shapes: Shapes) -> int:
    return sum(math.prod(shape) for shape in shapes)
