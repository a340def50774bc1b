"""A network as its framework has it, and as it is tuned and compiled."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import attrs
import numpy as np
from chameleon_core.stages import Arrays

from chameleon_networks.frameworks.reduced import FLOAT32, NetworkForms
from chameleon_networks.frameworks.running import Network
from chameleon_networks.graph.fused_operators import FusedOperator
from chameleon_networks.graph.warnings_once import warnings_once
from chameleon_networks.importers.options import AUTO, DEFAULT, NetworkOptions
from chameleon_networks.package.buckets import Buckets
from chameleon_networks.shapes import buckets_of
from chameleon_networks.source_location import SourceLocation


@attrs.frozen(kw_only=True, eq=False)
class BucketInputs:
    """Tells which inputs of a user's belong to one of several buckets of shapes.

    Attributes:
        name: of the bucket.
        dispatch: gives what chooses among all buckets; it is called with the first inputs.
    """

    name: str
    dispatch: Callable[[], Buckets]


class ImportedNetwork(ABC):
    """A network of some options, which frameworks run, too: its reference and its rivals.

    Attributes:
        layout: of the whole graph, as it is tuned and compiled.
        bucket: which inputs are its own as one of several buckets of shapes; None for all.
    """

    def __init__(self, options: NetworkOptions) -> None:
        self.options = options
        self.layout = DEFAULT if options.layout == AUTO else options.layout
        self.bucket: BucketInputs | None = None
        self._prepared: dict[str, tuple[Any, list[FusedOperator]]] = {}

    @abstractmethod
    def check_source(self) -> None:
        """See that what it is read from is there, as for ``Frontend.check_source``."""

    @abstractmethod
    def relax_module(self) -> tuple[Any, dict[str, SourceLocation]]:
        """The network as a Relax ``IRModule`` with constant weights.

        Returns:
            The module, and for the name of each variable in it the place that it is from.

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

    @cached_property
    def quantized(self) -> bool:
        """Whether it comes quantized."""
        from chameleon_networks.graph.steps import is_quantized  # noqa: PLC0415 - needs TVM

        return is_quantized(self.imported)

    @cached_property
    def has_quantized_activations(self) -> bool:
        """Whether it rounds what it computes to quantized numbers: its answers are some of few."""
        from chameleon_networks.graph.steps import is_rounded  # noqa: PLC0415 - needs TVM

        return is_rounded(self.imported)

    @abstractmethod
    def input_names(self) -> list[str]:
        """Names of the inputs as their framework has them, in their order."""

    @abstractmethod
    def samples(self, rng: np.random.Generator) -> Arrays:
        """Random inputs, one array each."""

    @cached_property
    def _read(self) -> tuple[Any, dict[str, SourceLocation]]:

        with warnings_once():
            return self.relax_module()

    def read_ahead(self) -> None:  # noqa: B027 - optional hook
        """Read what a compiler's crash cannot follow from, while another process waits for it."""

    @property
    def imported(self) -> Any:
        """The network as its framework writes it; read once."""
        return self._read[0]

    @property
    def locations(self) -> dict[str, SourceLocation]:
        """The place that each variable of ``imported`` comes from, by its name."""
        return self._read[1]

    @property
    def prepared(self) -> tuple[Any, list[FusedOperator]]:
        """The network as it is tuned and compiled, and the chains in it; made once a layout.

        Raises:
            ConfigError: it cannot be read or converted.
        """
        return self.prepared_in(self.layout)

    def prepared_in(self, layout: str) -> tuple[Any, list[FusedOperator]]:
        """As ``prepared``, in a layout that may not be the one in use."""
        from chameleon_networks.graph.chains import chains_of  # noqa: PLC0415 - needs TVM
        from chameleon_networks.graph.prepare import prepared  # noqa: PLC0415

        if layout not in self._prepared:
            imported = self.imported
            with warnings_once():
                module = prepared(imported, layout)
                self._prepared[layout] = module, chains_of(module)
        return self._prepared[layout]

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

    def precision_of(self, name: str) -> str:  # noqa: ARG002 - others compute in float32
        """The type that one of ``frameworks`` computes in."""
        return FLOAT32

    @property
    @abstractmethod
    def forms(self) -> NetworkForms:
        """The network in float32 for frameworks that reduce its precision themselves."""
