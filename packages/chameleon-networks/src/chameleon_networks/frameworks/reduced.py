"""What else runs a network in reduced precision, or in the one that it takes by itself.

Nothing is imported here before one of them is made: the names are choices of a command.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import attrs
from chameleon_core.plugins.factory import load_factory
from chameleon_tvm.types import BFLOAT16, FLOAT16, FLOAT32, INT8

if TYPE_CHECKING:
    from chameleon_core.stages import Arrays

    from chameleon_networks.frameworks.running import Network

AS_IT_COMES = "as-it-comes"
"""What is asked of something that takes the type it likes."""

PRECISIONS = (INT8, BFLOAT16, FLOAT16, AS_IT_COMES)
"""What can be asked for beside float32.

There is no row for ONNX Runtime and torch.compile as they come: they compute in float32 then.
"""


@attrs.frozen(kw_only=True)
class NetworkForms:
    """A network of float32 in the forms that frameworks read, each made when it is asked for.

    Attributes:
        program: gives the ``torch.export.ExportedProgram``; None of a network that torch has not.
        onnx: gives an ONNX file, or its content.
        shapes: of inputs that the file leaves open, by name.
    """

    program: Callable[[], Any] | None
    onnx: Callable[[], str | bytes]
    shapes: Mapping[str, Sequence[int]] = MappingProxyType({})


@attrs.frozen(kw_only=True)
class ReducedNetwork:
    """A network of some framework, opened.

    Attributes:
        run: outputs for inputs, both of the types of the network in float32.
        precision: what it computes in, as the framework says.
    """

    run: Network
    precision: str

    def __call__(self, inputs: Arrays) -> Arrays:
        return self.run(inputs)


@attrs.frozen(kw_only=True)
class Reduced:
    """A framework, and the precision that it is asked for.

    Attributes:
        framework: its name.
        precision: one of ``PRECISIONS``.
        factory: ``module:function`` of the forms of a network, inputs to calibrate with, the
            precision and the threads, which gives a ``ReducedNetwork``.
        needs: modules without which it does not run.
        converts: modules that it needs as well where the network is one of torch.
        of_torch: whether it runs networks of torch alone.
        calibrated: whether it has to see inputs first.
    """

    framework: str
    precision: str
    factory: str
    needs: tuple[str, ...]
    converts: tuple[str, ...] = ()
    of_torch: bool = False
    calibrated: bool = False

    @property
    def name(self) -> str:
        """What it is called in results; the precision asked for is a part of it."""
        return f"{self.framework} {self.precision.replace('-', ' ')}"

    def lacking(self, forms: NetworkForms) -> list[str]:
        """The modules that are not installed of those it needs for a network."""
        needs = self.needs + (self.converts if forms.program is not None else ())
        return [one for one in needs if importlib.util.find_spec(one) is None]

    def made(
        self, forms: NetworkForms, calibration: Sequence[Arrays], *, threads: int
    ) -> ReducedNetwork:
        """The network opened by the framework.

        Args:
            forms: the network.
            calibration: inputs of as many inferences, from which ranges of numbers are read.
            threads: that it computes with.

        Raises:
            Exception: the framework cannot run it so; whatever it raises.
        """
        network: ReducedNetwork = load_factory(self.factory)(
            forms, calibration, precision=self.precision, threads=threads
        )
        return network


_OPENVINO = "chameleon_networks.frameworks.openvino_precisions"
_TORCH = "chameleon_networks.frameworks.torch_precisions"

REDUCED_FRAMEWORKS = (
    Reduced(
        framework="openvino",
        precision=AS_IT_COMES,
        factory=f"{_OPENVINO}:as_it_comes",
        needs=("openvino",),
    ),
    Reduced(
        framework="openvino",
        precision=INT8,
        factory=f"{_OPENVINO}:quantized",
        needs=("openvino", "nncf"),
        calibrated=True,
    ),
    Reduced(
        framework="onnxruntime",
        precision=INT8,
        factory="chameleon_networks.frameworks.onnx_precisions:quantized",
        needs=("onnxruntime", "onnx"),
        converts=("onnxscript",),
        calibrated=True,
    ),
    Reduced(
        framework="torch.compile",
        precision=INT8,
        factory=f"{_TORCH}:quantized",
        needs=("torch", "torchao"),
        of_torch=True,
        calibrated=True,
    ),
    *(
        Reduced(
            framework="openvino",
            precision=kind,
            factory=f"{_OPENVINO}:in_half",
            needs=("openvino",),
        )
        for kind in (BFLOAT16, FLOAT16)
    ),
    *(
        Reduced(
            framework="torch.compile",
            precision=kind,
            factory=f"{_TORCH}:in_half",
            needs=("torch",),
            of_torch=True,
        )
        for kind in (BFLOAT16, FLOAT16)
    ),
)
"""Everything there is."""


def asked_for(forms: NetworkForms, precisions: Sequence[str]) -> list[Reduced]:
    """What can run a network in some precisions, were it installed; in the order of those.

    Args:
        forms: the network.
        precisions: each one of ``PRECISIONS``.
    """
    return [
        one
        for precision in dict.fromkeys(precisions)
        for one in REDUCED_FRAMEWORKS
        if one.precision == precision and (forms.program is not None or not one.of_torch)
    ]


def left_out_reduced(forms: NetworkForms, chosen: Sequence[Reduced]) -> dict[str, str]:
    """What of it cannot run here, by name, with half a sentence that says why."""
    return {
        one.name: f"{' and '.join(lacking)} {'is' if len(lacking) == 1 else 'are'} not installed"
        for one in chosen
        if (lacking := one.lacking(forms))
    }


def reduced_named(name: str) -> Reduced:
    """The one of ``REDUCED_FRAMEWORKS`` with a name."""
    return next(one for one in REDUCED_FRAMEWORKS if one.name == name)


__all__ = [
    "AS_IT_COMES",
    "BFLOAT16",
    "FLOAT16",
    "FLOAT32",
    "INT8",
    "PRECISIONS",
    "REDUCED_FRAMEWORKS",
    "NetworkForms",
    "Reduced",
    "ReducedNetwork",
    "asked_for",
    "left_out_reduced",
    "reduced_named",
]
