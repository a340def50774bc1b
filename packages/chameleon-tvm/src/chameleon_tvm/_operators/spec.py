"""An operator's arguments: name, epilogue, and dtypes on a target. Cheap to import."""

from __future__ import annotations

import json
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import attrs
from chameleon_core.plugin_api import ConfigError, Task, option

from chameleon_tvm._device.gpus import BFLOAT16_SINCE, capability
from chameleon_tvm._types import (
    BFLOAT16,
    COMPUTE,
    FLOAT16,
    FLOAT32,
    HALVES,
    INT8,
    LARGEST_PRODUCT,
    LARGEST_SUM,
    MOST_ELEMENTS,
    UINT8,
)

ON_TENSOR_CORES = ("conv2d", "dense", "batch_matmul")
"""Operators that Chameleon computes in half precision on GPUs."""


def format_extents(*extents: int) -> str:
    """Extents in the form ``3x224x224``."""
    return "x".join(map(str, extents))


def converted_option(help_text: str, default: Any = attrs.NOTHING, converter: Any = tuple) -> Any:
    """Declare an argument whose value is converted, for example a list to a tuple."""
    return attrs.field(default=default, converter=converter, metadata={"help": help_text})


@attrs.frozen(kw_only=True)
class OperatorSpec(ABC):
    """The arguments of an operator that a pipeline file lists under ``operators``.

    Attributes:
        name: Name, unique within a run. If empty, the run makes a name from the kind and the
            position in the file.
        weight: Number of times that the operator occurs in the network.
    """

    kind: ClassVar[str]

    name: str = option("", "unique name; made up if missing")
    weight: int = option(1, "how often the operator occurs in the network", at_least=1)

    @property
    @abstractmethod
    def flop(self) -> float:
        """Number of floating-point operations of one evaluation, by the mathematical definition."""

    @property
    def sizes(self) -> str:
        """The shapes in short form, for names of tasks: what is multiplied, ``@``, output size.

        For a convolution, ``512x512 3x3 @7x7`` means input and output channels, kernel, output
        size. For a product, ``768x3072 @128`` means summed elements, columns, rows.
        """
        return ""

    def arguments(self) -> dict[str, Any]:
        """JSON values that define the operator completely.

        Epilogue steps that the operator does not have are left out, and so are facts about its
        numbers that say nothing. So an operator without them keeps the record key that it had
        before they existed.
        """

        def defines(field: Any, value: Any) -> bool:
            if field.name in {"name", "weight"}:
                return False
            optional = field.metadata.keys() & {"epilogue", "output", "numbers"}
            return not (optional and value == self.default_of(field))

        return attrs.asdict(self, filter=defines)

    def default_of(self, field: Any) -> Any:
        """The default value of one of the operator's arguments, which may depend on the dtype.

        Args:
            field: The argument, a member of ``attrs.fields``.
        """
        return field.default

    @classmethod
    def of(cls, task: Task) -> Self:
        """The arguments of a task, as an object of this class."""
        return cls(**task.arguments, name=task.name, weight=task.weight)

    @property
    def tensors(self) -> Sequence[Sequence[int]]:
        """Shapes of the operator's tensors, as far as they follow from its arguments."""
        return ()

    def task(self, name: str, target: str) -> Task:
        """Make the operator's task for a resolved target.

        Raises:
            ConfigError: A tensor has more elements than kernels can index.
        """
        for shape in self.tensors:
            if math.prod(shape) > MOST_ELEMENTS:
                raise self.fail(
                    f"a tensor of the shape {list(shape)} has {math.prod(shape)} elements",
                    f"Kernels index at most {MOST_ELEMENTS}: split the operator, such as its "
                    "batch.",
                )
        return Task(
            name=self.name or name,
            operator=self.kind,
            arguments=self.arguments(),
            target=target,
            flop=self.flop,
            weight=self.weight,
        )

    def fail(self, problem: str, hint: str) -> ConfigError:
        """Make an error that names this operator."""
        return ConfigError(f"{self.kind} {self.name or '(unnamed)'}: {problem}", hint=hint)


ACTIVATIONS = (
    *("none", "relu", "relu6", "gelu", "gelu_tanh", "sigmoid", "silu", "tanh"),
    *("hardsigmoid", "hardswish", "gelu_sigmoid", "elu", "selu", "mish", "relu_squared"),
)
"""Names of the activations that an epilogue can apply to each output.

``gelu`` is the exact function, with erf. ``gelu_tanh`` and ``gelu_sigmoid`` are approximations of
it (Hendrycks and Gimpel, arXiv 1606.08415, section 2).
"""

_LEAKY = re.compile(r"leaky_relu\((\d*\.?\d+(?:e-?\d+)?)\)")


def leaky_relu(slope: float) -> str:
    """The name of the activation that multiplies numbers below zero by ``slope``."""
    return f"leaky_relu({slope:.6g})"


def slope_of(activation: str) -> float | None:
    """The slope of a ``leaky_relu`` for numbers below zero; None for other activations.

    Args:
        activation: The name of the activation.
    """
    match = _LEAKY.fullmatch(activation)
    return None if match is None else float(match[1])


@attrs.frozen(kw_only=True)
class TypedSpec(OperatorSpec):
    """The arguments of an operator that can be computed in several dtypes.

    Attributes:
        dtype: The dtype to compute in, which determines the dtypes of the inputs. Sums of products
            are float32, or int32 in an int8 operator.
        output_dtype: Dtype of the output.
    """

    dtype: str
    output_dtype: str = option(
        "",
        f"the output's dtype, if not the default: {FLOAT32} for operators in "
        f"{BFLOAT16} and {FLOAT16}, {UINT8} for those in {INT8}",
        output=True,
    )

    def __attrs_post_init__(self) -> None:
        resolved = resolve_output_dtype(self, self.dtype, self.output_dtype)
        object.__setattr__(self, "output_dtype", resolved)

    def default_of(self, field: Any) -> Any:
        is_output = field.metadata.get("output")
        return COMPUTE[self.dtype].outputs[0] if is_output else super().default_of(field)

    def task(self, name: str, target: str) -> Task:
        check_target(self, self.dtype, target, self.output_dtype)
        return super().task(name, target)

    @property
    def quantized(self) -> bool:
        """Whether the data are integers with a scale and a zero point."""
        return COMPUTE[self.dtype].quantized


@attrs.frozen(kw_only=True)
class FusedSpec(TypedSpec):
    """An operator with an epilogue, which is computed while the sums are still in registers.

    The output is ``activation(sums + bias + residual)``. An ``int8`` operator has uint8 data, int8
    weights and int32 sums; the module ``quantized`` defines its output. The residual has the
    output's dtype.

    Attributes:
        exact_weights: Dtype of fewer bits that holds all weights of a ``float32`` operator exactly,
            as in most checkpoints of language models; empty if there is none. Kernels may then
            store the weights in this dtype. Other dtypes than ``float32`` ignore it.
        cancellation: How many times larger rounding errors of products are, beside the largest
            output, than for data and weights around zero. They are larger if large products cancel.
            The value is a power of two, and 1 for other dtypes than float32.
        detail_cancellation: The same for the data without its mean over each window of a filter.
    """

    bias: bool = option(False, "whether a constant per output channel is added", epilogue=True)
    residual: bool = option(
        False, "whether an input of the output's shape and layout is added", epilogue=True
    )
    activation: str = option(
        "none",
        f"activation of the sum: one of {', '.join(ACTIVATIONS)}, or {leaky_relu(0.1)}",
        epilogue=True,
    )
    exact_weights: str = option(
        "",
        f"dtype of fewer bits that holds all weights exactly: {' or '.join(HALVES)}; for {FLOAT32}",
        numbers=True,
    )
    cancellation: int = option(
        1,
        "how many times larger rounding errors are than for numbers around zero, because large "
        "products cancel",
        at_least=1,
        numbers=True,
    )
    detail_cancellation: int = option(
        1,
        "the same for the data without its mean over each window of a filter",
        at_least=1,
        numbers=True,
    )

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        if self.exact_weights not in {"", *HALVES}:
            raise self.fail(
                f"exact_weights is {self.exact_weights!r}",
                f"Give the name of a dtype: {' or '.join(HALVES)}.",
            )
        if self.dtype != FLOAT32:
            for name in ("exact_weights", "cancellation", "detail_cancellation"):
                object.__setattr__(self, name, getattr(attrs.fields(type(self)), name).default)
        if self.activation not in ACTIVATIONS and slope_of(self.activation) is None:
            raise self.fail(
                f"the activation {self.activation!r} is not supported",
                f"Supported activations: {', '.join(ACTIVATIONS)}, {leaky_relu(0.1)}.",
            )
        if self.quantized and self.bias:
            raise self.fail(
                f"an {INT8} operator always adds an int32 bias of its own",
                "Leave bias out: it is zero then.",
            )

    def _check_sums(self) -> None:
        """Refuse integer sums that could overflow 32 bits; call this when the sizes are known."""
        if self.quantized:
            check_products(self, self.reduced, LARGEST_PRODUCT)

    @property
    @abstractmethod
    def reduced(self) -> int:
        """Number of products that each output adds up."""

    @property
    def plain(self) -> bool:
        """Whether the operator has no epilogue, so that the sums are the output."""
        added = self.bias or self.residual or self.activation != "none"
        return not (added or self.quantized)

    @property
    @abstractmethod
    def output_channels(self) -> int:
        """Number of output channels, which is also the number of elements of a bias."""

    @property
    @abstractmethod
    def result_shape(self) -> tuple[int, ...]:
        """The logical shape of the output and of the residual."""


def check_positive(spec: OperatorSpec, **numbers: int | tuple[int, ...]) -> None:
    """Raise an error if a size is not positive."""
    for what, value in numbers.items():
        values = (value,) if isinstance(value, int) else value
        if any(number < 1 for number in values):
            raise spec.fail(f"{what} {value} is not positive", f"Give {what} of at least 1.")


def check_dtype(spec: OperatorSpec, dtype: str, allowed: Sequence[str]) -> None:
    """Raise an error if an operator cannot be computed in the dtype that the user chose."""
    if dtype not in allowed:
        *others, last = allowed
        raise spec.fail(f"dtype {dtype!r} is not supported", f"Give {', '.join(others)} or {last}.")


def resolve_output_dtype(spec: OperatorSpec, dtype: str, output_dtype: str) -> str:
    """The dtype of an operator's output, as the user wrote it or by default.

    Raises:
        ConfigError: Operators that compute in ``dtype`` cannot write that output dtype.
    """
    known = COMPUTE[dtype].outputs
    if not output_dtype or output_dtype in known:
        return output_dtype or known[0]
    owners = [name for name, kind in COMPUTE.items() if output_dtype in kind.outputs]
    if not owners:
        raise spec.fail(
            f"output_dtype {output_dtype!r} is not supported",
            f"Give {' or '.join(known)}, or leave output_dtype out.",
        )
    raise spec.fail(
        f"output_dtype {output_dtype!r} is for {owners[0]} operators, and dtype is {dtype!r}",
        f"Give dtype: {owners[0]}, or leave output_dtype out.",
    )


def check_products(spec: OperatorSpec, count: int, largest: int) -> None:
    """Raise an error if an operator's integer sums could overflow 32 bits."""
    if count * largest > LARGEST_SUM:
        raise spec.fail(
            f"sums of {count} products of 8-bit integers could overflow 32 bits",
            f"Give dtype: float32, or sum up at most {LARGEST_SUM // largest} products.",
        )


def check_target(spec: OperatorSpec, dtype: str, target: str, output_dtype: str = "") -> None:
    """Raise an error if Chameleon does not support a dtype on a target."""
    if dtype == FLOAT32:
        return
    value: dict[str, Any] = json.loads(target)
    kind = value.get("kind")
    if kind == "llvm":
        return
    if COMPUTE[dtype].weights.whole:
        raise spec.fail(
            f"dtype {dtype!r} is for llvm targets, and the target is {kind!r}",
            f"Give {FLOAT32} or {FLOAT16} there, or a CPU as the target.",
        )
    if kind != "cuda":
        raise spec.fail(
            f"dtype {dtype!r} is for llvm and cuda targets, and the target is {kind!r}",
            "Give float32 there.",
        )
    if spec.kind not in ON_TENSOR_CORES:
        raise spec.fail(
            f"dtype {dtype!r} is for {', '.join(ON_TENSOR_CORES)} on a GPU", "Give float32 there."
        )
    if output_dtype not in ("", dtype):
        raise spec.fail(
            f"operators of dtype {dtype!r} write nothing else on a GPU", "Leave output_dtype out."
        )
    arch = str(value.get("arch", ""))
    if dtype == BFLOAT16 and arch and capability(arch) < BFLOAT16_SINCE:
        raise spec.fail(
            f"{BFLOAT16} needs a GPU of sm_80 or later, and the target is {arch}",
            f"Give {FLOAT16} there.",
        )
