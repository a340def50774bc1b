"""What every operator's specification has, epilogues included; cheap to import."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Self

import attrs
from chameleon_core.errors import ConfigError
from chameleon_core.task import Task

from chameleon_tvm.gpus import BFLOAT16_SINCE, capability


def times(*extents: int) -> str:
    """Extents as ``3x224x224``."""
    return "x".join(map(str, extents))


def helped(text: str) -> dict[str, str]:
    """Metadata of a field: its line of help."""
    return {"help": text}


@attrs.frozen(kw_only=True)
class OperatorSpec(ABC):
    """One operator of the ``operators`` frontend.

    Attributes:
        name: unique within a run; made from the kind and its place in the file where empty.
        weight: how often the operator occurs in the network.
    """

    kind: ClassVar[str]

    name: str = attrs.field(default="", metadata=helped("unique name; made up where missing"))
    weight: int = attrs.field(
        default=1,
        validator=attrs.validators.ge(1),
        metadata=helped("how often the operator occurs in the network"),
    )

    @property
    @abstractmethod
    def flop(self) -> float:
        """Floating-point operations of one evaluation, by the mathematical definition."""

    @property
    def sizes(self) -> str:
        """The shapes in few words, for names: what is summed and what comes out, then ``@`` where.

        Of a convolution ``512x512 3x3 @7x7`` (input and output channels, kernel, output), of a
        product ``768x3072 @128`` (sums, columns, rows).
        """
        return ""

    def arguments(self) -> dict[str, Any]:
        """JSON values that define the operator completely.

        What an epilogue does not do is left out: a plain operator keeps the key it always had.
        """

        def defines(field: Any, value: Any) -> bool:
            if field.name in {"name", "weight"}:
                return False
            return not (field.metadata.get("epilogue") and value == field.default)

        return attrs.asdict(self, filter=defines)

    @classmethod
    def of(cls, task: Task) -> Self:
        """The specification a task was made from."""
        return cls(**task.arguments, name=task.name, weight=task.weight)

    def task(self, name: str, target: str) -> Task:
        """The task on a resolved target."""
        return Task(
            name=self.name or name,
            operator=self.kind,
            arguments=self.arguments(),
            target=target,
            flop=self.flop,
            weight=self.weight,
        )

    def fail(self, problem: str, hint: str) -> ConfigError:
        """An error about this operator, as a sentence."""
        return ConfigError(f"{self.kind} {self.name or '(unnamed)'}: {problem}", hint=hint)


ACTIVATIONS = (
    *("none", "relu", "relu6", "gelu", "gelu_tanh", "sigmoid", "silu", "tanh"),
    *("hardsigmoid", "hardswish", "gelu_sigmoid", "elu", "selu", "mish", "relu_squared"),
)
"""What may be applied to every output at the end.

``gelu`` is the exact one, with erf; ``gelu_tanh`` and ``gelu_sigmoid`` are its approximations
(Hendrycks and Gimpel, arXiv 1606.08415, section 2).
"""

SELU_SLOPE, SELU_SCALE = 1.6732632423543772, 1.0507009873554805
"""Constants of self-normalizing networks (Klambauer et al. 2017, equation 2 and theorem 1)."""

_LEAKY = re.compile(r"leaky_relu\((\d*\.?\d+(?:e-?\d+)?)\)")


def leaky_relu(slope: float) -> str:
    """The name of the activation that multiplies what is below zero by a slope."""
    return f"leaky_relu({slope:.6g})"


def slope_of(activation: str) -> float | None:
    """The slope below zero of what ``leaky_relu`` named; None for other activations."""
    found = _LEAKY.fullmatch(activation)
    return None if found is None else float(found[1])


@attrs.frozen(kw_only=True)
class FusedSpec(OperatorSpec):
    """An operator with an epilogue, computed while the sums are still in registers.

    The output is ``activation(sums + bias + residual)``.
    """

    dtype: str
    bias: bool = attrs.field(
        default=False,
        metadata={"epilogue": True, **helped("whether a constant per output channel is added")},
    )
    residual: bool = attrs.field(
        default=False,
        metadata={
            "epilogue": True,
            **helped("whether an input of the output's shape and layout is added"),
        },
    )
    activation: str = attrs.field(
        default="none",
        metadata={
            "epilogue": True,
            **helped(
                f"after bias and residual: one of {', '.join(ACTIVATIONS)}, or {leaky_relu(0.1)}"
            ),
        },
    )

    def __attrs_post_init__(self) -> None:
        if self.activation not in ACTIVATIONS and slope_of(self.activation) is None:
            raise self.fail(
                f"the activation {self.activation!r} is not supported",
                f"Known ones here: {', '.join(ACTIVATIONS)}, {leaky_relu(0.1)}.",
            )

    @property
    def plain(self) -> bool:
        """Whether there is no epilogue."""
        return not (self.bias or self.residual or self.activation != "none")

    @property
    @abstractmethod
    def output_channels(self) -> int:
        """Number of output channels, which is how many numbers a bias has."""

    @property
    @abstractmethod
    def result_shape(self) -> tuple[int, ...]:
        """The output's logical shape, and the residual's."""


def positive(spec: OperatorSpec, **numbers: int | tuple[int, ...]) -> None:
    """Refuse sizes that are not positive."""
    for what, value in numbers.items():
        values = (value,) if isinstance(value, int) else value
        if any(number < 1 for number in values):
            raise spec.fail(f"{what} {value} is not positive", f"Give {what} of at least 1.")


HALVES = ("float16", "bfloat16")
"""Element types of two bytes; sums of their products are float32."""
DTYPES = ("float32", *HALVES)


def float_type(spec: OperatorSpec, dtype: str) -> None:
    """Refuse element types other than those that products are computed in."""
    if dtype not in DTYPES:
        raise spec.fail(
            f"dtype {dtype!r} is not supported", "Give float32 or, on GPUs, float16 or bfloat16."
        )


def on_gpu(spec: OperatorSpec, dtype: str, target: str) -> None:
    """Refuse half precision on targets where nothing here computes with it."""
    if dtype not in HALVES:
        return
    value = json.loads(target)
    if value.get("kind") != "cuda":
        raise spec.fail(f"dtype {dtype!r} is for cuda targets", "Give float32 on a CPU.")
    arch = str(value.get("arch", ""))
    if dtype == "bfloat16" and arch and capability(arch) < BFLOAT16_SINCE:
        raise spec.fail(
            f"bfloat16 needs a GPU of sm_80 or later, and the target is {arch}",
            "Give float16 there.",
        )


def only_float32(spec: OperatorSpec, dtype: str) -> None:
    """Refuse element types that nothing here computes with."""
    if dtype != "float32":
        raise spec.fail(f"dtype {dtype!r} is not supported", "Only float32 is, so far.")
