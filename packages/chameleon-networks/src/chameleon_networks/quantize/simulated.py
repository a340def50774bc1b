"""A network whose chains compute in float32 what they would compute in other types."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
import structlog
from chameleon_core.errors import ChameleonError
from chameleon_core.stages import Arrays
from numpy.typing import NDArray

from chameleon_networks.graph.fused_operators import FusedOperator
from chameleon_networks.graph.relaxed import relax, tvm
from chameleon_networks.quantize.correction import Means, constants_in
from chameleon_networks.quantize.eligibility import FLOAT32
from chameleon_networks.quantize.opened import guessed_kernels, opened
from chameleon_networks.quantize.ranges import LEVELS, Affine
from chameleon_networks.quantize.reads import Form, Network, Reads
from chameleon_networks.quantize.rounding import rounded

log = structlog.get_logger()

Ranges = Mapping[str, Affine]
Types = Mapping[int, str]
Observer = Callable[[int, int, NDArray[Any]], None]

_NUMBERS = itertools.count()


class SimulatedNetwork:
    """Runs a network with any types of its chains, compiled once.

    What a chain reads in a type is rounded to it and back, its weights too; products are summed in
    float32. (Jacob et al., arXiv 1712.05877, section 3, call that simulated quantization.) What it
    leaves out is the rounding of biases to whole numbers, half of the last place of a product.

    Args:
        module: what ``prepared`` returned.
        chains: its chains.
        target: the resolved target, of this machine.

    Attributes:
        network: who reads what in it.
        places: of the chains that can have types here.
        overflowed: whether a finite number became infinite where it was rounded in the last run;
            what is behind it (a ReLU6, say) may hide it.
    """

    def __init__(self, module: Any, chains: Sequence[FusedOperator], target: str) -> None:
        self.network = Network(module, chains)
        self._chains = chains
        self._kernels = guessed_kernels(chains, target)
        name = f"chameleon.precision.read_{next(_NUMBERS)}"
        tvm.register_global_func(name, self._read)
        found = opened(module, chains, self._kernels, target, name)
        self.places = found.placed
        self._machine = relax.VirtualMachine(found.executable, tvm.cpu())
        self._constants: dict[tuple[int, str], list[Any]] = {}
        self._means: Means = {}
        self._forms: dict[tuple[int, int], Form] = {}
        self._observer: Observer | None = None
        self._raised: ChameleonError | None = None
        self.overflowed = False

    @property
    def means(self) -> Means:
        """Of channels of what chains read, by name: biases are corrected with them."""
        return self._means

    @means.setter
    def means(self, means: Means) -> None:
        self._means = means
        self._constants = {key: made for key, made in self._constants.items() if key[1] == FLOAT32}

    def outputs(
        self,
        inputs: Arrays,
        types: Types | None = None,
        ranges: Ranges | None = None,
        observer: Observer | None = None,
    ) -> Arrays:
        """Run the network once.

        Args:
            inputs: one array each.
            types: of chains, by place; those without one compute in float32.
            ranges: of tensors that are read in int8, by name.
            observer: gets what chains read before it is rounded: a chain's place, the number of
                its input, and an array that is only there until it returns.

        Raises:
            ChameleonError: the observer raised it.
        """
        reduced = {place: kind for place, kind in (types or {}).items() if kind != FLOAT32}
        self._forms = self._forms_of(Reads(self.network, reduced, ranges or {}))
        self._observer = observer
        self.overflowed = False
        constants = [
            tensor
            for place in self.places
            for tensor in self._packed(place, reduced.get(place, FLOAT32))
        ]
        tensors = [tvm.runtime.tensor(one) for one in inputs]
        try:
            found = self._machine["main"](*tensors, *constants)
        except RuntimeError:
            # On its way through TVM an error becomes another one.
            raised, self._raised = self._raised, None
            if raised is None:
                raise
            raise raised from None
        return [one.numpy() for one in ([found] if hasattr(found, "numpy") else found)]

    def _forms_of(self, reads: Reads) -> dict[tuple[int, int], Form]:
        found = {}
        for place in self.places:
            edges = [(read, readers[0]) for read, readers in self.network.operands(place)]
            residual = self.network.residual(place) if place in reads.narrow else None
            edges += [] if residual is None else [residual]
            for number, (read, reader) in enumerate(edges):
                form = reads.of.get(reader, {}).get(read)
                if form is not None:
                    found[place, number] = form
        return found

    def _read(self, source: Any, place: int, number: int, out: Any) -> None:
        """What stands in front of a kernel: it writes what the kernel is to read."""
        values, written = np.from_dlpack(source), np.from_dlpack(out)
        if self._observer is not None:
            try:
                self._observer(place, number, values)
            except ChameleonError as error:
                self._raised = error
                raise
        form = self._forms.get((place, number))
        _round(values, form, written)
        if form is None:
            return
        infinite = np.isinf(written)
        if infinite.any() and np.isfinite(values[infinite]).any():
            self.overflowed = True

    def _packed(self, place: int, kind: str) -> list[Any]:
        """A chain's constants in a type, as its kernel wants them."""
        if (place, kind) not in self._constants:
            chain = self._chains[place]
            mean = self._means.get(self.network.names.get(chain.inputs[0], ""))
            constants = constants_in(chain, kind, mean)
            kernel = self._kernels.of(attrs.evolve(chain, constants=constants))
            assert kernel is not None  # noqa: S101 - it was placed
            packed = [one for one in kernel.arguments if one is not None]
            self._constants[place, kind] = [tvm.runtime.tensor(one) for one in packed]
        return self._constants[place, kind]


def _round(values: NDArray[Any], form: Form | None, written: NDArray[Any]) -> None:
    """Write values as a form has them, without memory of its own."""
    if form is None:
        np.copyto(written, values)
    elif form.affine is None:
        np.copyto(written, rounded(values, form.kind))
    else:
        zero = np.float32(form.affine.zero_point)
        with np.errstate(over="ignore"):
            np.divide(values, np.float32(form.affine.scale), out=written)
        np.rint(written, out=written)
        # Clipped around zero, which is the same as with the zero point added and taken off.
        np.clip(written, -zero, LEVELS - zero, out=written)
        np.multiply(written, np.float32(form.affine.scale), out=written)
