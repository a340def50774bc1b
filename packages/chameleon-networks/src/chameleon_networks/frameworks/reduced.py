"""Frameworks that run a network in reduced precision, or in a precision that they choose."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import attrs
from chameleon_core.arrays import Arrays
from chameleon_core.plugins.factory import load_factory
from chameleon_system.processor import this_processor
from chameleon_tvm.types import BFLOAT16, FLOAT16, INT8

from chameleon_networks.frameworks import AS_IT_COMES
from chameleon_networks.frameworks.running import Network, NetworkForms, not_installed

_VNNI = {"avx512_vnni", "avx_vnni"}
"""Linux's names of instructions that add 8-bit products in 32 bits."""


def sums_saturate() -> bool:
    """Whether int8 kernels of frameworks on this CPU add pairs of products in 16 bits.

    Such sums may saturate (stop at the largest 16-bit number). On x86 CPUs without VNNI, frameworks
    use ``vpmaddubsw`` and advise weights of 7 bits. See ONNX Runtime, Quantize ONNX models, "When
    and why do I need to try U8U8"
    (https://onnxruntime.ai/docs/performance/model-optimizations/quantization.html). See OpenVINO,
    the saturation issue of 8-bit instructions (its post-training tools' SaturationIssue.md).
    """
    processor = this_processor()
    if processor is None or processor.architecture != "x86_64":
        return False
    return not processor.flags & _VNNI


@attrs.frozen(kw_only=True)
class ReducedNetwork:
    """A network that a framework has opened in some precision.

    Attributes:
        run: A function that computes outputs for inputs. Inputs and outputs have the same dtypes as
            in the float32 network.
        precision: The precision that the network computes in, as the framework reports it.
    """

    run: Network
    precision: str

    def __call__(self, inputs: Arrays) -> Arrays:
        return self.run(inputs)


@attrs.frozen(kw_only=True)
class Reduction:
    """A request to open a network in some precision.

    Attributes:
        forms: The network.
        calibration: The inputs of several inferences, which show the ranges of the tensors.
        precision: One of ``frameworks.PRECISIONS``.
        threads: Number of threads that the framework computes with.
    """

    forms: NetworkForms
    calibration: Sequence[Arrays]
    precision: str
    threads: int


@attrs.frozen(kw_only=True)
class Reduced:
    """A framework, together with a precision in which it may run a network.

    Attributes:
        framework: The name of the framework.
        precision: One of ``frameworks.PRECISIONS``.
        factory: ``module:function`` of a function that opens a network. The function gets a
            ``Reduction`` and returns a ``ReducedNetwork``.
        needs: Modules that must be installed.
        converts: Modules that must be installed in addition if the network is a torch network.
        of_torch: Whether the framework runs only torch networks.
        calibrated: Whether the framework needs inputs to calibrate with.
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
        asked = Reduction(
            forms=forms, calibration=calibration, precision=self.precision, threads=threads
        )
        network: ReducedNetwork = load_factory(self.factory)(asked)
        return network


HALVES = (BFLOAT16, FLOAT16)

_OPENVINO = "chameleon_networks.frameworks.openvino_precisions"
_TORCH = "chameleon_networks.frameworks.torch_precisions"

_OF_OPENVINO = partial(Reduced, framework="openvino", needs=("openvino",))
_OF_TORCH = partial(Reduced, framework="torch.compile", needs=("torch",), of_torch=True)

REDUCED_FRAMEWORKS = (
    _OF_OPENVINO(precision=AS_IT_COMES, factory=f"{_OPENVINO}:as_it_comes"),
    _OF_OPENVINO(
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
    _OF_TORCH(
        precision=INT8, factory=f"{_TORCH}:quantized", needs=("torch", "torchao"), calibrated=True
    ),
    *(_OF_OPENVINO(precision=kind, factory=f"{_OPENVINO}:in_half") for kind in HALVES),
    *(_OF_TORCH(precision=kind, factory=f"{_TORCH}:in_half") for kind in HALVES),
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
