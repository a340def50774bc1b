"""Calibration inputs: those of the user's function, or random ones."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import attrs
import numpy as np
import structlog
from chameleon_core.plugin_api import Arrays, ConfigError
from chameleon_tvm.api import first_line, named_function
from numpy.typing import NDArray

from chameleon_networks._evaluation.verify import Sample
from chameleon_networks._importers.imported_network import BucketInputs, ImportedNetwork
from chameleon_networks._names import python_names
from chameleon_networks._source_files import watched, watched_items

log = structlog.get_logger()

RANDOM_BATCHES = 8
"""Number of random batches if the user has none. With more batches, ranges hardly change."""
MAX_BATCHES = 512
"""Most batches that are read, over all buckets. A user's function may yield batches for ever."""
HELD_OUT_BATCHES = 3
"""Most batches at the end that are not used for calibration. If there are few batches, half of
them."""

_SEED = 7_000
_KINDS = {"f": "numbers with a fraction", "i": "whole numbers", "u": "whole numbers", "b": "truths"}


def batches_of(network: ImportedNetwork, source: str | None) -> Batches:
    """The calibration batches of a user's function, or random ones."""
    if source is None:
        return Batches(_random_batches(network), "random inputs")
    bucket = network.bucket
    where = "" if bucket is None else f" in bucket {bucket.name}"
    return Batches(user_samples(network, source, "calibrate"), f"{source}{where}")


class Batches:
    """Batches for calibration, iterated once; the last ones are held out for errors.

    Attributes:
        samples: After the iteration, the batches that were kept. A single batch serves both for
            calibration and for measuring errors.
        count: Number of all batches, after the iteration.
    """

    def __init__(self, batches: Iterator[Sample], source: str) -> None:
        self._batches = batches
        self._source = source
        self.samples: list[Sample] = []
        self.count = 0

    def __iter__(self) -> Iterator[Arrays]:
        """Yield the batches to calibrate with."""
        pending: deque[Sample] = deque()
        for batch in self._batches:
            self.count += 1
            pending.append(batch)
            if len(pending) > HELD_OUT_BATCHES:
                yield pending.popleft().inputs
        if not pending:
            raise ConfigError(
                f"calibrate: {self._source} yields no batch",
                hint="Yield at least two: some to calibrate with, and some to check with.",
            )
        while len(pending) > max(1, min(HELD_OUT_BATCHES, self.count // 2)):
            yield pending.popleft().inputs
        self.samples = list(pending)
        if self.count == 1:
            log.warning(
                "calibrated_with_one_batch",
                source=self._source,
                reason="errors are measured on the very batch that ranges are from; yield several",
            )
            yield self.samples[0].inputs

    @property
    def summary(self) -> str:
        """A phrase with the numbers of batches for calibration and for measuring errors."""
        if self.count == 1:
            return f"calibrated with one batch of {self._source}, which errors are measured on too"
        used, rest = self.count - len(self.samples), len(self.samples)
        return (
            f"calibrated with {used} of {self.count} batches of {self._source}, {rest} kept aside"
        )


def _random_batches(network: ImportedNetwork) -> Iterator[Sample]:
    log.warning(
        "calibrated_with_random_inputs",
        reason="the pipeline names none; ranges and errors are those of random numbers",
        hint='Write `calibrate: "data.py:batches"`, a function that yields inputs.',
    )
    for number in range(RANDOM_BATCHES):
        yield Sample(inputs=network.samples(np.random.default_rng(_SEED + number)))


def user_samples(network: ImportedNetwork, source: str, key: str) -> Iterator[Sample]:
    """Yield the batches of a user's function, of a bucketed network those of its bucket."""
    with watched(network.sources):
        function = named_function(source, key, "Name a function that yields batches of inputs.")
    batches = partial(_batches_from, network, function, source, key)
    return watched_items(batches, network.sources)


def _batches_from(
    network: ImportedNetwork, function: Any, source: str, key: str
) -> Iterator[Sample]:
    examples = network.samples(np.random.default_rng(_SEED))
    first = len(examples) - len(network.state)
    examples_of = dict(zip(network.input_names()[:first], examples[:first], strict=True))
    others: Counter[str] = Counter()
    number = own_count = 0
    try:
        for number, batch in enumerate(_check_iterable(function(), f"{key}: {source}"), start=1):
            label = f"{key}: batch {number} of {source}"
            arrays = _to_arrays(batch, examples_of, label)
            if network.bucket is None:
                sample = _fixed_shape_sample(arrays, examples_of, label)
                yield attrs.evolve(sample, inputs=[*sample.inputs, *examples[first:]])
                own_count += 1
            else:
                name, sample = _bucket_sample(network.bucket, arrays, label)
                if name == network.bucket.name:
                    yield sample
                    own_count += 1
                else:
                    others[name] += 1
            if number == MAX_BATCHES:
                log.warning("later_batches_ignored", batches=MAX_BATCHES)
                break
    except ConfigError:
        raise
    # The user's function may raise anything.
    except Exception as error:
        raise ConfigError(
            f"{key}: {source} failed after {number} batches: {first_line(error)}",
            hint="Call the function by hand to see the whole traceback.",
        ) from error
    if others and not own_count and network.bucket is not None:
        counts = ", ".join(f"{count} in {name}" for name, count in others.items())
        raise ConfigError(
            f"{key}: no batch of {source} is in bucket {network.bucket.name}; there are {counts}",
            hint="Yield at least two batches for each bucket, or leave the bucket out.",
        )


def _fixed_shape_sample(
    arrays: Arrays, examples_of: Mapping[str, NDArray[Any]], label: str
) -> Sample:
    """Check the shapes of a batch for a network with one input shape."""
    for array, (name, example) in zip(arrays, examples_of.items(), strict=True):
        if array.shape != example.shape:
            raise ConfigError(
                f"{label}: input {name!r} has the shape {list(array.shape)} instead of "
                f"{list(example.shape)}",
                hint="Yield batches of the very shape that the network is compiled for.",
            )
    return Sample(inputs=arrays)


def _bucket_sample(bucket: BucketInputs, arrays: Arrays, label: str) -> tuple[str, Sample]:
    """The name of the bucket that a batch belongs to, and the batch padded to its shapes."""
    try:
        name, inputs, cuts = bucket.padded_call(*arrays)
    except ValueError as error:
        raise ConfigError(
            f"{label}: {error}", hint="Yield batches as the network gets them later."
        ) from error
    return name, Sample(inputs=inputs, cuts=tuple(cuts))


def _check_iterable(result: Any, source: str) -> Iterable[Any]:
    """Check that the result of a user's function is iterable."""
    if isinstance(result, np.ndarray | Mapping | str) or not hasattr(result, "__iter__"):
        raise ConfigError(
            f"{source} returned a {type(result).__name__} instead of batches",
            hint="Yield each batch, or return a list of them.",
        )
    batches: Iterable[Any] = result
    return batches


def _to_arrays(batch: Any, examples_of: Mapping[str, NDArray[Any]], label: str) -> Arrays:
    """Convert one batch to arrays of the dtypes that the network takes. Shapes are not checked."""
    inputs_text = ", ".join(f"{name} {list(array.shape)}" for name, array in examples_of.items())
    if isinstance(batch, Mapping):
        names = [*examples_of]
        sources = dict(zip(python_names(names, "input"), names, strict=True))
        batch = {sources.get(name, name): array for name, array in batch.items()}
        missing, unknown = (examples_of.keys() - batch.keys(), batch.keys() - examples_of.keys())
        if missing or unknown:
            problem = f"lacks {sorted(missing)}" if missing else f"has {sorted(map(str, unknown))}"
            raise ConfigError(f"{label} {problem}", hint=f"The network takes {inputs_text}.")
        arrays: Sequence[Any] = [batch[name] for name in examples_of]
    else:
        arrays = batch if isinstance(batch, tuple | list) else [batch]
        if len(arrays) != len(examples_of):
            raise ConfigError(
                f"{label} has {len(arrays)} arrays for {len(examples_of)} inputs",
                hint=f"The network takes {inputs_text}.",
            )
    pairs = zip(arrays, examples_of.items(), strict=True)
    return [_to_array(array, like, f"{label}: input {name!r}") for array, (name, like) in pairs]


def _to_array(value: Any, example: NDArray[Any], label: str) -> NDArray[Any]:
    array = np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)
    kind, wanted_kind = _KINDS.get(array.dtype.kind), _KINDS.get(example.dtype.kind)
    if kind != wanted_kind:
        raise ConfigError(
            f"{label} is of {array.dtype} instead of {example.dtype}",
            hint=f"Yield what the network gets later, as .astype({str(example.dtype)!r}).",
        )
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        numbers = "NaN" if np.isnan(array).any() else "infinities"
        raise ConfigError(
            f"{label} has {numbers} in it",
            hint="Leave such batches out: nothing can be calibrated or checked with them.",
        )
    return np.ascontiguousarray(array, example.dtype)
