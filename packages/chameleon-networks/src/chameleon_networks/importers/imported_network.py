"""A network as its framework has it, and as TVM reads it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

import attrs
import numpy as np
from chameleon_core.arrays import Arrays
from chameleon_core.dtypes import FLOAT32
from chameleon_core.network_result import OperatorCoverage

from chameleon_networks.frameworks.running import Network, NetworkForms
from chameleon_networks.graph.warnings_once import warnings_once
from chameleon_networks.importers.options import AUTO, DEFAULT, NetworkOptions
from chameleon_networks.importers.refusals import OperatorsRefusedError, OperatorSurvey
from chameleon_networks.shapes import buckets_of
from chameleon_networks.source_location import ImportedGraph


@attrs.frozen(kw_only=True, eq=False)
class BucketInputs:
    """Tells which inputs of a user's belong to one of several buckets of shapes.

    Attributes:
        name: of the bucket.
        placed: the name of the bucket of some inputs, its own inputs, and the cuts of its
            outputs. A cut is the number of the output and of its axis, and the extent.
    """

    name: str
    placed: Callable[..., tuple[str, Arrays, list[tuple[int, int, int]]]]


class ImportedNetwork(ABC):
    """A network of some options, which frameworks run, too: its reference and its rivals.

    Attributes:
        layout: of the whole graph, as it is tuned and compiled.
        bucket: which inputs are its own as one of several buckets of shapes; None for all.
        sibling: the network of the same source in other shapes, from which this one may take what
            is the same for all.
        programs: files that another process has kept of it, as ``kept_programs`` returned them.
        preloads: modules that reading it needs, which a process imports until it is asked.
    """

    preloads: ClassVar[tuple[str, ...]] = ()

    def __init__(self, options: NetworkOptions) -> None:
        self.options = options
        self.layout = DEFAULT if options.layout == AUTO else options.layout
        self.bucket: BucketInputs | None = None
        self.sibling: ImportedNetwork | None = None
        self.programs: Mapping[str, str] = {}

    @abstractmethod
    def read_graph(self) -> ImportedGraph:
        """The network as Relax has it.

        Raises:
            ConfigError: it cannot be read; says where.
        """

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of inputs by name, if the pipeline asks for any.

        Raises:
            ValueError: some are in buckets, of which a ``BucketedNetwork`` makes networks.
        """
        [bucket] = buckets_of(self.options.shapes)
        return dict(bucket.shapes)

    @property
    def half(self) -> str | None:
        """Its own precision if that is half: ``float16`` or ``bfloat16``, or None.

        Such a network is compiled in float32 and has inputs and outputs in float32.
        """
        return None

    @property
    def quantized(self) -> bool:
        """Whether it comes quantized."""
        return self.graph.is_quantized

    @property
    def has_quantized_activations(self) -> bool:
        """Whether it rounds what it computes to quantized numbers: its answers are some of few."""
        return self.graph.is_rounded

    @abstractmethod
    def input_names(self) -> list[str]:
        """Names of the inputs as their framework has them, in their order."""

    @abstractmethod
    def samples(self, rng: np.random.Generator) -> Arrays:
        """Random inputs, one array each."""

    @cached_property
    def graph(self) -> ImportedGraph:
        """The result of ``read_graph``, read once."""
        with warnings_once():
            return self.read_graph()

    def coverage(self) -> Sequence[OperatorCoverage]:
        """The network's operators, and which of them cannot be compiled.

        Raises:
            ConfigError: it cannot be read, for another reason.
        """
        try:
            survey = OperatorSurvey(operators=Counter(self.graph.operators))
        except OperatorsRefusedError as refused:
            survey = refused.survey
        return survey.coverage()

    def kept_programs(self) -> Mapping[str, str]:
        """Files from which other processes have what takes long to read, by its name.

        They are there for as long as this object is.
        """
        return {}

    def read_ahead(self) -> None:  # noqa: B027 - optional hook
        """Read what a compiler's crash cannot follow from, while another process waits for it."""

    @property
    def imported(self) -> Any:
        """The network as its framework writes it, a Relax ``IRModule``."""
        return self.graph.module

    @property
    @abstractmethod
    def frameworks(self) -> tuple[str, ...]:
        """Others that can run the network here; the first one is the reference."""

    @property
    def exact(self) -> str | None:
        """The one that ``framework`` can run the network with in float64, if there is any."""
        return None

    @property
    @abstractmethod
    def left_out(self) -> Mapping[str, str]:
        """Others that could run the network, were they installed: what is missing, by name."""

    @abstractmethod
    def framework(self, name: str, threads: int) -> Network:
        """The network run by something else.

        Args:
            name: one of ``frameworks``, or ``exact``.
            threads: it computes with.
        """

    @abstractmethod
    def values(self, names: Sequence[str], inputs: Arrays) -> Arrays:
        """Values inside of the framework's graph.

        Args:
            names: the ``output`` of some locations.
            inputs: of an inference.
        """

    def precision_of(self, name: str) -> str:  # noqa: ARG002 - others compute in float32
        """The type that one of ``frameworks`` computes in."""
        return FLOAT32

    @property
    @abstractmethod
    def forms(self) -> NetworkForms:
        """The network in float32 for frameworks that reduce its precision themselves."""
