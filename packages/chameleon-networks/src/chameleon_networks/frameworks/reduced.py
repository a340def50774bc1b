"""Frameworks that run a network in reduced precision, or in a precision that they choose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import attrs
from chameleon_core.arrays import Arrays
from chameleon_tvm.types import BFLOAT16, FLOAT16, INT8

from chameleon_networks.frameworks import AS_IT_COMES, reductions
from chameleon_networks.frameworks.reductions import ReducedNetwork, Reduction
from chameleon_networks.frameworks.running import NetworkForms, not_installed


@attrs.frozen(kw_only=True)
class Reduced:
    """A framework, together with a precision in which it may run a network.

    Attributes:
        framework: The name of the framework.
        precision: One of ``frameworks.PRECISIONS``.
        open: A function that opens a network.
        needs: Modules that must be installed.
        converts: Modules that must be installed in addition if the network is a torch network.
        of_torch: Whether the framework runs only torch networks.
        calibrated: Whether the framework needs inputs to calibrate with.
    """

    framework: str
    precision: str
    open: Callable[[Reduction], ReducedNetwork]
    needs: tuple[str, ...]
    converts: tuple[str, ...] = ()
    of_torch: bool = False
    calibrated: bool = False

    @property
    def name(self) -> str:
        """The name of the framework and the precision in results, such as "openvino int8"."""
        return f"{self.framework} {self.precision.replace('-', ' ')}"

    def needed(self, forms: NetworkForms) -> tuple[str, ...]:
        """The modules that must be installed for a given network."""
        return self.needs + (self.converts if forms.program is not None else ())

    def opened(
        self, forms: NetworkForms, calibration: Sequence[Arrays], *, threads: int
    ) -> ReducedNetwork:
        """Open a network in the framework and the precision.

        Args:
            forms: The network, in the forms that frameworks read.
            calibration: The inputs of several inferences, which show the ranges of the tensors.
            threads: Number of threads that the framework computes with.

        Raises:
            Exception: The framework cannot run the network in this precision; any exception.
        """
        return self.open(
            Reduction(
                forms=forms, calibration=calibration, precision=self.precision, threads=threads
            )
        )


HALVES = (BFLOAT16, FLOAT16)

_OF_OPENVINO = partial(Reduced, framework="openvino", needs=("openvino",))
_OF_TORCH = partial(Reduced, framework="torch.compile", needs=("torch",), of_torch=True)

REDUCED_FRAMEWORKS = (
    _OF_OPENVINO(precision=AS_IT_COMES, open=reductions.openvino_as_it_comes),
    _OF_OPENVINO(
        precision=INT8,
        open=reductions.openvino_quantized,
        needs=("openvino", "nncf"),
        calibrated=True,
    ),
    Reduced(
        framework="onnxruntime",
        precision=INT8,
        open=reductions.onnxruntime_quantized,
        needs=("onnxruntime", "onnx"),
        converts=("onnxscript",),
        calibrated=True,
    ),
    _OF_TORCH(
        precision=INT8, open=reductions.torch_quantized, needs=("torch", "torchao"), calibrated=True
    ),
    *(_OF_OPENVINO(precision=kind, open=reductions.openvino_in_half) for kind in HALVES),
    *(_OF_TORCH(precision=kind, open=reductions.torch_in_half) for kind in HALVES),
)
"""All combinations of a framework and a precision."""


def asked_for(forms: NetworkForms, precisions: Sequence[str]) -> list[Reduced]:
    """The frameworks that can run a network in the given precisions, in the order of precisions.

    A framework is included even if its modules are not installed.

    Args:
        forms: The network.
        precisions: Some of ``frameworks.PRECISIONS``.
    """
    return [
        reduced
        for precision in dict.fromkeys(precisions)
        for reduced in REDUCED_FRAMEWORKS
        if reduced.precision == precision and (forms.program is not None or not reduced.of_torch)
    ]


def left_out_reduced(forms: NetworkForms, chosen: Sequence[Reduced]) -> dict[str, str]:
    """The missing package of each choice that cannot run on this machine.

    The keys are names of choices (``Reduced.name``).

    Args:
        forms: The files of the network. They decide on the packages that a framework needs.
        chosen: The frameworks, each with a precision.
    """
    return not_installed({reduced.name: reduced.needed(forms) for reduced in chosen})


def reduced_named(name: str) -> Reduced:
    """The item of ``REDUCED_FRAMEWORKS`` with a given name."""
    return next(reduced for reduced in REDUCED_FRAMEWORKS if reduced.name == name)
