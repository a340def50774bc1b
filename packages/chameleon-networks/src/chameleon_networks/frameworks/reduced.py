"""Other programs that run a network in reduced precision, or in one that they choose."""

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
"""Linux' names of instructions that add products of eight bits in 32 bits."""


def sums_saturate() -> bool:
    """Whether int8 convolutions of frameworks add pairs of products in 16 bits, which saturate.

    On x86 before VNNI they use ``vpmaddubsw``, and advise weights of 7 bits. See ONNX Runtime,
    Quantize ONNX models, "When and why do I need to try U8U8"
    (https://onnxruntime.ai/docs/performance/model-optimizations/quantization.html). See OpenVINO,
    the saturation issue of 8-bit instructions (its post-training tools' SaturationIssue.md).
    """
    processor = this_processor()
    if processor is None or processor.architecture != "x86_64":
        return False
    return not processor.flags & _VNNI


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
class Reduction:
    """A network to be run in another precision.

    Attributes:
        forms: the network.
        calibration: inputs of as many inferences, from which ranges of numbers are read.
        precision: one of ``frameworks.PRECISIONS``.
        threads: that it computes with.
    """

    forms: NetworkForms
    calibration: Sequence[Arrays]
    precision: str
    threads: int


@attrs.frozen(kw_only=True)
class Reduced:
    """A framework, and the precision that it is asked for.

    Attributes:
        framework: its name.
        precision: one of ``frameworks.PRECISIONS``.
        factory: ``module:function`` of a ``Reduction``, which gives a ``ReducedNetwork``.
        needs: modules without which it does not run.
        converts: modules that it needs as well if the network is one of torch.
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
        """Its name in results; the precision asked for is a part of it."""
        return f"{self.framework} {self.precision.replace('-', ' ')}"

    def needed(self, forms: NetworkForms) -> tuple[str, ...]:
        """The modules that it needs for a network."""
        return self.needs + (self.converts if forms.program is not None else ())

    def opened(
        self, forms: NetworkForms, calibration: Sequence[Arrays], *, threads: int
    ) -> ReducedNetwork:
        """The network opened by the framework; arguments are those of a ``Reduction``.

        Raises:
            Exception: the framework cannot run it so; whatever it raises.
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
"""Everything there is."""


def asked_for(forms: NetworkForms, precisions: Sequence[str]) -> list[Reduced]:
    """Programs that run a network in some precisions if installed, in the order of those.

    Args:
        forms: the network.
        precisions: each one of ``frameworks.PRECISIONS``.
    """
    return [
        reduced
        for precision in dict.fromkeys(precisions)
        for reduced in REDUCED_FRAMEWORKS
        if reduced.precision == precision and (forms.program is not None or not reduced.of_torch)
    ]


def left_out_reduced(forms: NetworkForms, chosen: Sequence[Reduced]) -> dict[str, str]:
    """Those that cannot run here, by name, with the reason."""
    return not_installed({reduced.name: reduced.needed(forms) for reduced in chosen})


def reduced_named(name: str) -> Reduced:
    """The one of ``REDUCED_FRAMEWORKS`` with a name."""
    return next(reduced for reduced in REDUCED_FRAMEWORKS if reduced.name == name)
