"""Frameworks that run a network in reduced precision, or in a precision that they choose."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
from chameleon_core.plugin_api import FLOAT32, Arrays, ConfigError
from chameleon_system.api import own_architecture, temporary_folder, this_processor
from chameleon_tvm.api import BFLOAT16, FLOAT16, INT8

from chameleon_networks._frameworks import AS_IT_COMES, inference
from chameleon_networks._frameworks.precision import in_half

NAMES = {"f32": FLOAT32, "bf16": BFLOAT16, "f16": FLOAT16}
"""Names of dtypes by OpenVINO's names of them."""

HINTS = {ours: theirs for theirs, ours in NAMES.items()}
"""OpenVINO's names of dtypes by the usual names."""

_PT2E = "torchao.quantization.pt2e"

_VNNI = {"avx512_vnni", "avx_vnni"}
"""Linux's names of instructions that add 8-bit products in 32 bits."""


def sums_saturate() -> bool:
    """Whether int8 kernels may saturate 16-bit sums here, as on x86 without VNNI."""
    # Without VNNI, frameworks use vpmaddubsw, and advise weights of 7 bits: ONNX Runtime
    # (https://onnxruntime.ai/docs/performance/model-optimizations/quantization.html) and OpenVINO
    # (SaturationIssue.md of its post-training tools).
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

    run: inference.Network
    precision: str

    def __call__(self, inputs: Arrays) -> Arrays:
        return self.run(inputs)


@attrs.frozen(kw_only=True)
class OpenRequest:
    """A request to open a network in some precision.

    Attributes:
        calibration: The inputs of several inferences, which show the ranges of the tensors.
        precision: One of ``frameworks.PRECISIONS``.
    """

    forms: inference.NetworkForms
    calibration: Sequence[Arrays]
    precision: str
    threads: int


def openvino_by_default(asked: OpenRequest) -> ReducedNetwork:
    """Open a network in OpenVINO with the precision that it chooses for this CPU."""
    return _opened(inference.openvino_model(asked.forms), threads=asked.threads)


def openvino_in_half(asked: OpenRequest) -> ReducedNetwork:
    """Open a network in OpenVINO with a hint to compute in bfloat16 or in float16."""
    model, precision = inference.openvino_model(asked.forms), asked.precision
    network = _opened(model, threads=asked.threads, hint=HINTS[precision])
    if network.precision != precision:
        raise ConfigError(
            f"asked for {precision} it computes in {network.precision} on this CPU",
            hint="The CPU has no instructions for it that OpenVINO uses.",
        )
    return network


def openvino_quantized(asked: OpenRequest) -> ReducedNetwork:
    """Open a network in OpenVINO, quantized by NNCF, the rest in OpenVINO's choice."""
    network = _opened(quantized_model(asked.forms, asked.calibration), threads=asked.threads)
    rest = network.precision
    named = INT8 if rest == FLOAT32 else f"{INT8}, the rest {rest}"
    return attrs.evolve(network, precision=named)


def quantized_model(forms: inference.NetworkForms, calibration: Sequence[Arrays]) -> Any:
    """Quantize by NNCF's static quantization, with its advice for attention."""
    nncf = importlib.import_module("nncf")
    model = inference.openvino_model(forms)
    names = [tensor.get_any_name() for tensor in model.inputs]
    dataset = nncf.Dataset(list(calibration), lambda inputs: dict(zip(names, inputs, strict=True)))
    fix = nncf.OverflowFix.FIRST_LAYER if sums_saturate() else nncf.OverflowFix.DISABLE
    return nncf.quantize(
        model,
        dataset,
        subset_size=len(calibration),
        model_type=nncf.ModelType.TRANSFORMER if _has_attention(model) else None,
        advanced_parameters=nncf.AdvancedQuantizationParameters(overflow_fix=fix),
    )


def _opened(model: Any, *, threads: int, hint: str | None = None) -> ReducedNetwork:
    compiled = inference.openvino_compiled(model, threads=threads, hint=hint)
    run = inference.openvino_inference(compiled)
    kind = inference.openvino_precision(compiled)
    return ReducedNetwork(run=run, precision=NAMES.get(kind, kind))


def default_precision(framework: str) -> str:
    """The precision in which a framework computes on this machine if it is asked for none."""
    kind = inference.openvino_default() if framework == inference.OPENVINO else FLOAT32
    return NAMES.get(kind, kind)


def _has_attention(model: Any) -> bool:
    """Whether an OpenVINO model has an attention operator or multiplies the result of a softmax."""
    for node in model.get_ops():
        kind = node.get_type_name()
        if kind == "ScaledDotProductAttention":
            return True
        if kind == "Softmax" and any(
            target.get_node().get_type_name() == "MatMul"
            for target in node.output(0).get_target_inputs()
        ):
            return True
    return False


def onnxruntime_quantized(asked: OpenRequest) -> ReducedNetwork:
    """Open a network in ONNX Runtime in int8, as ``quantized_file`` quantizes it."""
    with temporary_folder() as folder:
        file = quantized_file(asked.forms, asked.calibration, Path(folder))
        run = inference.onnx_session(file, threads=asked.threads)
    return ReducedNetwork(run=run, precision=INT8)


def quantized_file(
    forms: inference.NetworkForms, calibration: Sequence[Arrays], folder: Path
) -> str:
    """Write an int8 ONNX file by ``quantize_static``, as its documentation advises."""
    quantization: Any = importlib.import_module("onnxruntime.quantization")
    preprocess: Any = importlib.import_module("onnxruntime.quantization.shape_inference")
    onnx: Any = importlib.import_module("onnx")
    kinds = quantization.QuantType
    unsigned = own_architecture() != "aarch64"
    simple, output = str(Path(folder, "simple.onnx")), str(Path(folder, "quantized.onnx"))
    # Given the content instead of a file, ONNX Runtime loses the weights on the way.
    preprocess.quant_pre_process(forms.onnx_file(folder), simple, skip_symbolic_shape=True)
    graph = onnx.load(simple, load_external_data=False).graph
    constants = {tensor.name for tensor in graph.initializer}
    names = [tensor.name for tensor in graph.input if tensor.name not in constants]
    rows = (dict(zip(names, inputs, strict=True)) for inputs in calibration)
    # QDQ with weights per channel is what the documentation advises for CPUs.
    quantization.quantize_static(
        simple,
        output,
        SimpleNamespace(get_next=lambda: next(rows, None)),
        quant_format=quantization.QuantFormat.QDQ,
        per_channel=True,
        reduce_range=sums_saturate(),
        activation_type=kinds.QUInt8 if unsigned else kinds.QInt8,
        weight_type=kinds.QInt8,
    )
    return output


def torch_in_half(asked: OpenRequest) -> ReducedNetwork:
    """Convert a whole network to bfloat16 or float16, and compile it with ``torch.compile``."""
    program = in_half(_program(asked.forms), asked.precision)
    run = inference.torch_network(program, compiled=True, threads=asked.threads)
    return ReducedNetwork(run=run, precision=asked.precision)


def torch_quantized(asked: OpenRequest) -> ReducedNetwork:
    """Quantize by torchao's pt2e for inductor on x86, as in PyTorch's tutorial, and compile."""
    pt2e: Any = importlib.import_module(f"{_PT2E}.quantize_pt2e")
    x86: Any = importlib.import_module(f"{_PT2E}.quantizer.x86_inductor_quantizer")
    inference.limit_torch(asked.threads)
    program = _program(asked.forms)
    # As in "PyTorch 2 Export Quantization with X86 Backend through Inductor"; torchao advises
    # activations of 7 bits for CPUs without VNNI.
    quantizer = x86.X86InductorQuantizer()
    quantizer.set_global(
        x86.get_default_x86_inductor_quantization_config(reduce_range=sums_saturate())
    )
    observed = pt2e.prepare_pt2e(program.module(), quantizer)
    observe = inference.torch_inference(observed, program)
    for inputs in asked.calibration:
        observe(inputs)
    converted = pt2e.convert_pt2e(observed)
    run = inference.torch_inference(inference.compile_with_torch(converted), program)
    return ReducedNetwork(run=run, precision=INT8)


def _program(forms: inference.NetworkForms) -> Any:
    if forms.program is None:
        raise ValueError("there is no program of torch")
    return forms.program()


@attrs.frozen(kw_only=True)
class ReducedFramework:
    """A framework, together with a precision in which it may run a network.

    Attributes:
        precision: One of ``frameworks.PRECISIONS``.
        open: A function that opens a network.
        needs: Modules that must be installed.
        converts: Modules that must be installed in addition if the network is a torch network.
        of_torch: Whether the framework runs only torch networks.
        calibrated: Whether the framework needs inputs to calibrate with.
    """

    framework: str
    precision: str
    open: Callable[[OpenRequest], ReducedNetwork]
    needs: tuple[str, ...]
    converts: tuple[str, ...] = ()
    of_torch: bool = False
    calibrated: bool = False

    @property
    def name(self) -> str:
        """The name of the framework and the precision in results, such as "openvino int8"."""
        return f"{self.framework} {self.precision.replace('-', ' ')}"

    def needed(self, forms: inference.NetworkForms) -> tuple[str, ...]:
        """The modules that must be installed for a given network."""
        return self.needs + (self.converts if forms.program is not None else ())

    def opened(
        self, forms: inference.NetworkForms, calibration: Sequence[Arrays], *, threads: int
    ) -> ReducedNetwork:
        """Open a network in the framework and the precision."""
        return self.open(
            OpenRequest(
                forms=forms, calibration=calibration, precision=self.precision, threads=threads
            )
        )


_OF_OPENVINO = partial(ReducedFramework, framework="openvino", needs=("openvino",))
_OF_TORCH = partial(ReducedFramework, framework="torch.compile", needs=("torch",), of_torch=True)

REDUCED_FRAMEWORKS = (
    _OF_OPENVINO(precision=AS_IT_COMES, open=openvino_by_default),
    _OF_OPENVINO(
        precision=INT8,
        open=openvino_quantized,
        needs=("openvino", "nncf"),
        calibrated=True,
    ),
    ReducedFramework(
        framework="onnxruntime",
        precision=INT8,
        open=onnxruntime_quantized,
        needs=("onnxruntime", "onnx"),
        converts=("onnxscript",),
        calibrated=True,
    ),
    _OF_TORCH(precision=INT8, open=torch_quantized, needs=("torch", "torchao"), calibrated=True),
    *(_OF_OPENVINO(precision=kind, open=openvino_in_half) for kind in (BFLOAT16, FLOAT16)),
    *(_OF_TORCH(precision=kind, open=torch_in_half) for kind in (BFLOAT16, FLOAT16)),
)
"""All combinations of a framework and a precision."""


def select_frameworks(
    forms: inference.NetworkForms, precisions: Sequence[str]
) -> list[ReducedFramework]:
    """The frameworks for a network in these precisions, installed or not, in order."""
    return [
        reduced
        for precision in dict.fromkeys(precisions)
        for reduced in REDUCED_FRAMEWORKS
        if reduced.precision == precision and (forms.program is not None or not reduced.of_torch)
    ]


def missing_packages(
    forms: inference.NetworkForms, chosen: Sequence[ReducedFramework]
) -> dict[str, str]:
    """The missing package of each choice that cannot run on this machine, by its name."""
    return inference.missing_modules({reduced.name: reduced.needed(forms) for reduced in chosen})


def framework_named(name: str) -> ReducedFramework:
    """The item of ``REDUCED_FRAMEWORKS`` with a given name."""
    return next(reduced for reduced in REDUCED_FRAMEWORKS if reduced.name == name)
