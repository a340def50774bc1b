"""The arguments of matrix products, their checks, and the shapes that follow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import attrs
from chameleon_core.plugin_api import option

from chameleon_tvm._operators.spec import (
    FusedSpec,
    TypedSpec,
    check_dtype,
    check_positive,
    check_products,
    converted_option,
    format_extents,
)
from chameleon_tvm._types import FLOAT32, HALVES, INT7, INT8, LARGEST_DIFFERENCES, VARYING, WEIGHTED


@attrs.frozen(kw_only=True)
class DenseSpec(FusedSpec):
    """A matrix product with constant weights: (rows, features) x (units, features)^T."""

    kind: ClassVar[str] = "dense"

    input: tuple[int, int] = converted_option("input shape as [rows, features]")
    units: int = option(attrs.NOTHING, "number of outputs per row")
    dtype: str = option(
        FLOAT32, f"dtype: {FLOAT32}, {' or '.join(HALVES)}, or {INT8} or {INT7} on CPUs"
    )

    def __attrs_post_init__(self) -> None:
        check_dtype(self, self.dtype, WEIGHTED)
        super().__attrs_post_init__()
        if len(self.input) != 2:  # noqa: PLR2004
            raise self.fail("input needs 2 numbers", "Write input as [rows, features].")
        check_positive(self, input=self.input, units=self.units)
        self._check_sums()

    @property
    def reduced(self) -> int:
        return self.input[1]

    @property
    def output_channels(self) -> int:
        return self.units

    @property
    def filter_shape(self) -> tuple[int, int]:
        """The weights' logical shape (units, features)."""
        return (self.units, self.input[1])

    @property
    def result_shape(self) -> tuple[int, ...]:
        return (self.input[0], self.units)

    @property
    def tensors(self) -> Sequence[Sequence[int]]:
        return (self.input, self.filter_shape, self.result_shape)

    @property
    def sizes(self) -> str:
        rows = f" @{self.input[0]}" if self.input[0] > 1 else ""
        return format_extents(self.input[1], self.units) + rows

    @property
    def flop(self) -> float:
        return 2.0 * self.input[0] * self.input[1] * self.units


@attrs.frozen(kw_only=True)
class BatchMatmulSpec(TypedSpec):
    """Matrix products (batch, m, k) x (batch, k, n), neither side constant.

    An ``int8`` operator has two uint8 sides, each with a scale and a zero point.
    """

    kind: ClassVar[str] = "batch_matmul"

    a: tuple[int, int, int] = converted_option("left shape as [batch, m, k]")
    b: tuple[int, int, int] = converted_option(
        "right shape as [batch, k, n]; [batch, n, k] with transpose_b"
    )
    transpose_b: bool = option(False, "whether the right side is stored as [batch, n, k]")
    dtype: str = option(FLOAT32, f"dtype: float32, {' or '.join(HALVES)}, or {INT8} on CPUs")

    def __attrs_post_init__(self) -> None:
        check_dtype(self, self.dtype, VARYING)
        super().__attrs_post_init__()
        if len(self.a) != 3 or len(self.b) != 3:  # noqa: PLR2004
            raise self.fail("a and b need 3 numbers each", "Write a as [batch, m, k].")
        check_positive(self, a=self.a, b=self.b)
        inner = self.b[2] if self.transpose_b else self.b[1]
        if self.a[0] != self.b[0] or self.a[2] != inner:
            raise self.fail(
                f"a of {list(self.a)} and b of {list(self.b)} do not fit together",
                "a is [batch, m, k]; b is [batch, k, n], or [batch, n, k] with transpose_b.",
            )
        if self.quantized:
            check_products(self, self.a[2], LARGEST_DIFFERENCES)

    @property
    def columns(self) -> int:
        """Number of columns of the product."""
        return self.b[1] if self.transpose_b else self.b[2]

    @property
    def result_shape(self) -> tuple[int, int, int]:
        """The output's shape (batch, m, n)."""
        return (*self.a[:2], self.columns)

    @property
    def tensors(self) -> Sequence[Sequence[int]]:
        return (self.a, self.b, self.result_shape)

    @property
    def sizes(self) -> str:
        return f"{format_extents(self.a[2], self.columns)} @{format_extents(*self.a[:2])}"

    @property
    def flop(self) -> float:
        return 2.0 * self.a[0] * self.a[1] * self.a[2] * self.columns


__all__ = ["BatchMatmulSpec", "DenseSpec"]
