"""A network that a framework can run and that TVM can compile."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Protocol

import attrs
import numpy as np
from chameleon_core.api import NetworkResult
from chameleon_core.plugin_api import FLOAT32, Arrays
from numpy.typing import NDArray

from chameleon_networks._frameworks.inference import (
    OPENVINO,
    Network,
    NetworkForms,
    onnx_session,
    openvino_network,
)
from chameleon_networks._graph.relax_utils import (
    counted_axes,
    exact_variables,
    relax,
    values_of,
)
from chameleon_networks._graph.tvm_warnings import warnings_once
from chameleon_networks._importers.options import AUTO, DEFAULT, NetworkOptions
from chameleon_networks._importers.unsupported_operators import (
    OperatorSurvey,
    UnsupportedOperatorsError,
)
from chameleon_networks._shapes import Bucket, bucket_with, buckets_of, dimensions_of
from chameleon_networks._source_files import SourceFiles
from chameleon_networks._source_location import ImportedGraph

Steps = tuple[tuple[int, int], ...]
"""How a size follows from another: pairs (a, s), by which n becomes (n + a) // s in turn."""


@attrs.frozen(kw_only=True, eq=False)
class BucketInputs:
    """Finds out which of a user's sample inputs belong to one bucket of shapes.

    Attributes:
        name: The name of the bucket.
        padded_call: A function of some inputs. It returns the name of the inputs' bucket, the
            inputs padded to the shapes of that bucket, and the cuts of the outputs. A cut is the
            number of an output, the number of its axis, and the extent to keep.
    """

    name: str
    padded_call: Callable[..., tuple[str, Arrays, list[tuple[int, int, int]]]]


class KeptGraph(Protocol):
    """The graph of a network and facts about the network, in this machine's cache folder."""

    def fact(self, name: str) -> tuple[Any, str] | None:
        """Read a fact about the network, such as its graph, that an earlier run cached."""

    def keep_fact(self, name: str, value: Any, arrays: Sequence[NDArray[Any]] = ...) -> None:
        """Keep a JSON value, and arrays beside it, unless they cannot be written."""

    def arrays(self, name: str) -> Arrays | None:
        """The arrays that were kept beside a fact, or None."""

    def graph(self) -> ImportedGraph | None:
        """The graph, or None if it was not kept."""

    def keep_graph(self, graph: ImportedGraph) -> None:
        """Keep the graph, unless it is known or cannot be written."""


class ImportedNetwork(ABC):
    """A network from a source, which TVM compiles and frameworks run as reference.

    Attributes:
        layout: The layout of the whole graph in which the network is tuned and compiled.
        bucket: The object that finds out which inputs belong to this network, if the network is
            compiled for one of several buckets of shapes. Otherwise None.
        sibling: The network of the same source in other shapes, or None. Both networks share data
            that do not depend on shapes.
        programs: Files with parts of this network that another process wrote, such as an exported
            torch program. Reading them is faster than reading the source again. The keys are those
            of ``kept_programs``.
        cancellations: For layers in which large products cancel, the ``cancellation`` and
            ``detail_cancellation`` (``FusedSpec``) by the digest of their weights. It is empty
            before the check of the network.
        preloads: Names of modules that reading the network needs. A process imports them early,
            while it waits.
    """

    preloads: ClassVar[tuple[str, ...]] = ()

    def __init__(self, options: NetworkOptions) -> None:
        self.options = options
        self.layout = DEFAULT if options.layout == AUTO else options.layout
        self.bucket: BucketInputs | None = None
        self.sibling: ImportedNetwork | None = None
        self.programs: Mapping[str, str] = {}
        self.cancellations: Mapping[str, tuple[int, int]] = {}
        self.kept: KeptGraph | None = None

    @abstractmethod
    def read_graph(self) -> ImportedGraph:
        """Read the network into Relax, TVM's graph language."""

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The input shapes in the pipeline file, by input name."""
        [bucket] = buckets_of(self.options.shapes)
        return dict(bucket.shapes)

    @property
    def origin(self) -> Any:
        """The network's source as JSON values, or None if another process cannot read it."""
        return None

    @cached_property
    def sources(self) -> SourceFiles:
        """The files that the network was read from; files that user's code reads are added."""
        return {} if self.sibling is None else self.sibling.sources

    @property
    def half(self) -> str | None:
        """``float16`` or ``bfloat16`` if the network is in half precision, else None."""
        # Such networks are compiled in float32.
        return None

    @property
    def quantized(self) -> bool:
        """Whether the model that was imported quantizes or dequantizes tensors."""
        return self.graph.is_quantized

    @property
    def has_quantized_activations(self) -> bool:
        """Whether the network quantizes activations, and not only its weights."""
        return self.graph.is_rounded

    def keep(self) -> None:
        """Store the imported graph in the cache, so that later processes need not import it."""
        if self.kept is not None:
            self.kept.keep_graph(self.graph)

    @abstractmethod
    def input_names(self) -> list[str]:
        """The names of the inputs in the framework, in order."""

    @property
    @abstractmethod
    def returned(self) -> Any:
        """The structure in which the framework returns the outputs, as JSON values.

        A tensor is its name in the framework. A container is a mapping: its ``type`` is ``tuple``,
        ``list``, ``dict`` or the name of a class, and ``parts`` are its parts. The ``keys`` are
        those of a ``dict``, or the fields of a class.
        """

    @property
    def state(self) -> tuple[str, ...]:
        """The names of the buffers that a call changes, as in a decoder with a cache.

        In this class and in frameworks, the buffers are the network's last inputs, and their new
        values are its last outputs, which ``returned`` leaves out.
        """
        return ()

    @abstractmethod
    def samples(self, rng: np.random.Generator) -> Arrays:
        """Random inputs for one inference, one array for each input."""

    @property
    def float_ranges(self) -> Sequence[tuple[float, float] | None]:
        """The smallest and the largest number of each input; None if the numbers are fixed."""
        return ()

    @property
    def bounded_inputs(self) -> frozenset[str]:
        """The names of integer inputs that are known not to be data, such as indices."""
        return frozenset()

    @property
    def example_inputs(self) -> Arrays | None:
        """The user's example inputs for one inference, or None if there are none."""
        return None

    @cached_property
    def graph(self) -> ImportedGraph:
        """The network in Relax (``read_graph``), which is read once, or taken from the cache."""
        cached = None if self.kept is None else self.kept.graph()
        if cached is not None:
            return cached
        with warnings_once():
            return self.read_graph()

    def coverage(self) -> Sequence[NetworkResult.OperatorCoverage]:
        """The operators of the network, each with the reasons why it cannot be compiled, if any."""
        try:
            survey = OperatorSurvey(operators=Counter(self.graph.operators))
        except UnsupportedOperatorsError as error:
            survey = error.survey
        return survey.coverage()

    def kept_programs(self) -> Mapping[str, str]:
        """Write files from which other processes read parts of this network, by attribute."""
        return {}

    @property
    def programs_folder(self) -> str:
        """The folder of ``kept_programs``, where another process may write them instead."""
        return ""

    def save_programs(self, folder: str) -> Mapping[str, str]:  # noqa: ARG002 - subclasses use it
        """Write the files of ``kept_programs`` into a folder."""
        return {}

    def read_ahead(self) -> None:  # noqa: B027 - optional hook
        """Read the parts of the source that need no compiler, before TVM may crash."""

    def branch_extents(
        self,
        axes: Collection[tuple[str, int]],  # noqa: ARG002 - for others
        extents: range,  # noqa: ARG002
    ) -> set[int]:
        """Extents on both sides of each branch that depends on the extent of ``axes``, if known."""
        return set()

    @property
    def imported(self) -> Any:
        """The network as a Relax ``IRModule``, before any change of the graph."""
        return self.graph.module

    @cached_property
    def exact_outputs(self) -> frozenset[int]:
        """The numbers of the outputs whose integers no rounding changes."""
        if self.has_quantized_activations:
            return frozenset()
        main = self.imported["main"]
        exact, result = exact_variables(main), main.body.body
        whole = values_of(main).get(result, result)
        outputs = list(whole.fields) if isinstance(whole, relax.Tuple) else [result]
        outputs = outputs[: len(outputs) - len(counted_axes(main))]
        return frozenset(number for number, output in enumerate(outputs) if output in exact)

    @property
    @abstractmethod
    def frameworks(self) -> tuple[str, ...]:
        """Names of the frameworks that can run the network on this machine, the reference first."""

    @property
    def references(self) -> tuple[str, ...]:
        """Names of the implementations that can verify the network, the preferred one first."""
        # A torch network is defined by torch: no other framework replaces it.
        return self.frameworks[:1]

    @property
    def arbiters(self) -> tuple[str, ...]:
        """Names of implementations that decide if the network and its reference disagree."""
        return () if self.exact is None else (self.exact,)

    @property
    def exact(self) -> str | None:
        """The argument ``name`` with which ``framework`` computes in float64; None if it cannot."""
        return None

    @property
    @abstractmethod
    def left_out(self) -> Mapping[str, str]:
        """The missing package of each framework that could run the network."""

    def framework(self, name: str, threads: int) -> Network:
        """Open the network in a framework, as a function from inputs to outputs."""
        if name == OPENVINO:
            return openvino_network(self.forms, threads=threads)
        return onnx_session(self.forms.onnx(), threads=threads)

    @abstractmethod
    def values(self, names: Sequence[str], batches: Iterable[Arrays]) -> Iterator[Arrays]:
        """Yield intermediate values of the network for each batch, computed by its framework."""

    def precision_of(self, name: str) -> str:  # noqa: ARG002 - subclasses use it
        """The dtype in which a framework computes this network."""
        return FLOAT32

    @property
    @abstractmethod
    def forms(self) -> NetworkForms:
        """The float32 network in the formats that frameworks read: ONNX, and a torch program."""


class BucketedNetwork:
    """A network for several input shapes, which is compiled separately for each shape.

    Attributes:
        options: The argument ``options``.
        dimensions: The dimensions of the inputs that have several extents.
        padding_checked: Whether the framework has answered all tests of padding.
        output_steps: How sizes of outputs may follow from an open dimension.
        networks: Pairs of a bucket and its network, the smallest shapes first.
    """

    def __init__(self, make: Callable[[Any], ImportedNetwork], options: NetworkOptions) -> None:
        self.options = options
        self.dimensions = dimensions_of(options.shapes)
        self.padding_checked = False
        self.output_steps: tuple[Steps, ...] = ()
        self._make = make
        self._known: dict[tuple[int, ...], ImportedNetwork] = {}
        self.networks = [
            (bucket, self._with_shapes(bucket)) for bucket in buckets_of(options.shapes)
        ]

    @property
    def is_open(self) -> bool:
        """Whether a dimension is a range, whose buckets Chameleon chose."""
        return any(dimension.probes for dimension in self.dimensions)

    def keep(self, names: Collection[str]) -> None:
        """Keep the buckets of these names, and forget the others."""
        self.networks = [pair for pair in self.networks if pair[0].name in names]
        kept = [bucket.extents for bucket, _ in self.networks]
        self.dimensions = tuple(
            attrs.evolve(dimension, buckets=tuple(sorted(set(extents))))
            for dimension, extents in zip(self.dimensions, zip(*kept, strict=True), strict=True)
        )

    def _with_shapes(self, bucket: Bucket) -> ImportedNetwork:
        """The network for the shapes of a bucket, which is made once and shares the source."""
        if bucket.extents not in self._known:
            network = self._make(attrs.evolve(self.options, shapes=dict(bucket.shapes)))
            network.sibling = next(iter(self._known.values()), None)
            self._known[bucket.extents] = network
        return self._known[bucket.extents]

    def with_extents(self, extents: Sequence[int]) -> ImportedNetwork:
        """The network for shapes between those of two buckets, to test padding."""
        return self._with_shapes(bucket_with(self.options.shapes, self.dimensions, extents))

    def branch_extents(self, dimension: int, extents: range) -> set[int]:
        """Extents below a bucket at which its network may branch otherwise than in the bucket.

        Args:
            dimension: The number of the dimension; the others have their smallest extents.
            extents: The extents below the bucket, above the next smaller one.
        """
        bucket = [other.buckets[0] for other in self.dimensions]
        bucket[dimension] = extents.stop
        axes = [(axis.input, axis.axis) for axis in self.dimensions[dimension].axes]
        return self.with_extents(bucket).branch_extents(axes, extents)

    def named(self, extents: Sequence[int]) -> str:
        """A phrase for messages with the extent of each dimension, such as "batch 8"."""
        pairs = zip(self.dimensions, extents, strict=True)
        return " and ".join(f"{dimension} {extent}" for dimension, extent in pairs)

    @cached_property
    def input_names(self) -> list[str]:
        """The names of all inputs, in order."""
        return self.networks[0][1].input_names()
