"""Calibration inputs: those of the user's function, or random ones."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import structlog
from chameleon_core.plugin_api import Arrays, ConfigError
from chameleon_tvm.api import first_line, named_function
from numpy.typing import NDArray

from chameleon_networks._evaluation.verify import Sample
from chameleon_networks._importers.imported_network import BucketInputs, ImportedNetwork

log = structlog.get_logger()

RANDOM = 8
"""Number of random batches if the user has none. With more batches, ranges hardly change."""
MOST = 512
"""Most batches that are read, over all buckets. A user's function may yield batches for ever."""
KEPT = 3
"""Most batches at the end that are not used for calibration. If there are few batches, half of
them."""

_SEED = 7_000
_KINDS = {"f": "numbers with a fraction", "i": "whole numbers", "u": "whole numbers", "b": "truths"}


def batches_of(network: ImportedNetwork, source: str | None) -> Batches:
    """The batches of inputs that a network is calibrated with.

    A network for one bucket of shapes gets the user's batches that have the bucket's shapes or can
    be padded to them. The user's function is called once for each bucket.

    Args:
        network: The imported network.
        source: ``path.py:function`` or ``package.module:function``. The function yields batches: an
            array, a list with one array per input, or a mapping by input name. None for random
            inputs.

    Raises:
        ConfigError: The function does not exist.
    """
    if source is None:
        return Batches(_random(network), "random inputs")
    bucket = network.bucket
    where = "" if bucket is None else f" in bucket {bucket.name}"
    return Batches(user_samples(network, source, "calibrate"), f"{source}{where}")


class Batches:
    """Batches of inputs for calibration. The last ones are kept for measuring errors instead.

    The batches can be iterated once.

    Args:
        batches: All batches.
        source: A phrase for messages that says where the batches come from.

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
        """Yield the batches to calibrate with.

        Raises:
            ConfigError: There are no batches, or one does not fit the network.
        """
        waiting: deque[Sample] = deque()
        for batch in self._batches:
            self.count += 1
            waiting.append(batch)
            if len(waiting) > KEPT:
                yield waiting.popleft().inputs
        if not waiting:
            raise ConfigError(
                f"calibrate: {self._source} yields no batch",
                hint="Yield at least two: some to calibrate with, and some to check with.",
            )
        while len(waiting) > max(1, min(KEPT, self.count // 2)):
            yield waiting.popleft().inputs
        self.samples = list(waiting)
        if self.count == 1:
            log.warning(
                "calibrated_with_one_batch",
                source=self._source,
                why="errors are measured on the very batch that ranges are from; yield several",
            )
            yield self.samples[0].inputs

    @property
    def summary(self) -> str:
        """A phrase with the numbers of batches for calibration and for measuring errors."""
        if self.count == 1:
            return f"calibrated with one batch of {self._source}, which errors are measured on too"
        used, aside = self.count - len(self.samples), len(self.samples)
        return (
            f"calibrated with {used} of {self.count} batches of {self._source}, {aside} kept aside"
        )


def _random(network: ImportedNetwork) -> Iterator[Sample]:
    log.warning(
        "calibrated_with_random_inputs",
        why="the pipeline names none; ranges and errors are those of random numbers",
        hint='Write `calibrate: "data.py:batches"`, a function that yields inputs.',
    )
    for number in range(RANDOM):
        yield Sample(inputs=network.samples(np.random.default_rng(_SEED + number)))


def user_samples(network: ImportedNetwork, source: str, key: str) -> Iterator[Sample]:
    """Call a user's function, and yield its batches as inputs of a network.

    A network that is compiled for one bucket of shapes gets only the batches of that bucket, padded
    to its shapes. Otherwise every batch must have the network's input shapes. To serve several
    buckets, call ``user_samples`` once for each bucket.

    Args:
        network: The imported network.
        source: The function, as ``path.py:function`` or ``package.module:function``.
        key: Name of the option that contains ``source``, for error messages.

    Raises:
        ConfigError: The function does not exist. The iterator raises it if the function fails, if a
            batch does not fit the network, or if no batch is in the bucket.
    """
    function = named_function(source, key, "Name a function that yields batches of inputs.")
    return _batches_from(network, function, source, key)


def _batches_from(
    network: ImportedNetwork, function: Any, source: str, key: str
) -> Iterator[Sample]:
    examples = network.samples(np.random.default_rng(_SEED))
    wanted = dict(zip(network.input_names(), examples, strict=True))
    elsewhere: Counter[str] = Counter()
    number = own = 0
    try:
        for number, batch in enumerate(_yielded(function(), f"{key}: {source}"), start=1):
            who = f"{key}: batch {number} of {source}"
            arrays = _checked(batch, wanted, who)
            if network.bucket is None:
                yield _whole(arrays, wanted, who)
                own += 1
            else:
                name, sample = _in_bucket(network.bucket, arrays, who)
                if name == network.bucket.name:
                    yield sample
                    own += 1
                else:
                    elsewhere[name] += 1
            if number == MOST:
                log.warning("batches_ended", batches=MOST, why="no more are read")
                break
    except ConfigError:
        raise
    # The user's function may raise anything.
    except Exception as error:
        raise ConfigError(
            f"{key}: {source} failed after {number} batches: {first_line(error)}",
            hint="Call the function by hand to see the whole traceback.",
        ) from error
    if elsewhere and not own and network.bucket is not None:
        counts = ", ".join(f"{count} in {name}" for name, count in elsewhere.items())
        raise ConfigError(
            f"{key}: no batch of {source} is in bucket {network.bucket.name}; there are {counts}",
            hint="Yield at least two batches for each bucket, or leave the bucket out.",
        )


def _whole(arrays: Arrays, wanted: Mapping[str, NDArray[Any]], who: str) -> Sample:
    """Check the shapes of a batch for a network with one input shape."""
    for array, (name, example) in zip(arrays, wanted.items(), strict=True):
        if array.shape != example.shape:
            raise ConfigError(
                f"{who}: input {name!r} has the shape {list(array.shape)} instead of "
                f"{list(example.shape)}",
                hint="Yield batches of the very shape that the network is compiled for.",
            )
    return Sample(inputs=arrays)


def _in_bucket(bucket: BucketInputs, arrays: Arrays, who: str) -> tuple[str, Sample]:
    """The name of the bucket that a batch belongs to, and the batch padded to its shapes."""
    try:
        name, inputs, cuts = bucket.placed(*arrays)
    except ValueError as error:
        raise ConfigError(
            f"{who}: {error}", hint="Yield batches as the network gets them later."
        ) from error
    return name, Sample(inputs=inputs, cuts=tuple(cuts))


def _yielded(result: Any, source: str) -> Iterable[Any]:
    """Check that the result of a user's function is iterable."""
    if isinstance(result, np.ndarray | Mapping | str) or not hasattr(result, "__iter__"):
        raise ConfigError(
            f"{source} returned a {type(result).__name__} instead of batches",
            hint="Yield each batch, or return a list of them.",
        )
    batches: Iterable[Any] = result
    return batches


def _checked(batch: Any, wanted: Mapping[str, NDArray[Any]], who: str) -> Arrays:
    """Convert one batch to arrays of the dtypes that the network takes. Shapes are not checked.

    Args:
        batch: A batch that the user's function yielded.
        wanted: An example of each input, by name.
        who: A phrase that names the batch in messages.
    """
    takes = ", ".join(f"{name} {list(example.shape)}" for name, example in wanted.items())
    if isinstance(batch, Mapping):
        lacking, unknown = wanted.keys() - batch.keys(), batch.keys() - wanted.keys()
        if lacking or unknown:
            what = f"lacks {sorted(lacking)}" if lacking else f"has {sorted(map(str, unknown))}"
            raise ConfigError(f"{who} {what}", hint=f"The network takes {takes}.")
        arrays: Sequence[Any] = [batch[name] for name in wanted]
    else:
        arrays = batch if isinstance(batch, tuple | list) else [batch]
        if len(arrays) != len(wanted):
            raise ConfigError(
                f"{who} has {len(arrays)} arrays for {len(wanted)} inputs",
                hint=f"The network takes {takes}.",
            )
    pairs = zip(arrays, wanted.items(), strict=True)
    return [_array(array, example, f"{who}: input {name!r}") for array, (name, example) in pairs]


def _array(value: Any, example: NDArray[Any], who: str) -> NDArray[Any]:
    array = np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)
    kind, wanted = _KINDS.get(array.dtype.kind), _KINDS.get(example.dtype.kind)
    if kind != wanted:
        raise ConfigError(
            f"{who} is of {array.dtype} instead of {example.dtype}",
            hint=f"Yield what the network gets later, as .astype({str(example.dtype)!r}).",
        )
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        numbers = "NaN" if np.isnan(array).any() else "infinities"
        raise ConfigError(
            f"{who} has {numbers} in it",
            hint="Leave such batches out: nothing can be calibrated or checked with them.",
        )
    return np.ascontiguousarray(array, example.dtype)
