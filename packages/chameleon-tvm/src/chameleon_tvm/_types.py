"""The table of dtypes: how numbers are stored, and what operators multiply and write.

A *storage type* describes how a tensor's numbers lie in memory: bits, dtype of buffers, range of
integers, and rounding of float32. A *compute type* is the meaning of an operator's ``dtype`` and of
a pipeline's ``precision``. It consists of the storage types of data and weights, the dtype of their
sums, and the permitted outputs. ``int7`` is a variant of ``int8``, from which it differs only in
the range of its weights. Pipelines and results say ``int8`` for both, tasks distinguish them.

Chameleon changes a network's dtypes in three steps. Each step reads this table and mentions no
dtype by name:

- *encode*: an operator's data are rounded to their storage type and back (``quantize/types.py``).
  Integers have a scale and a zero point in addition.
- *move*: operators that only move or select numbers work on encoded numbers (``graph/moving.py``).
- *decode*: an operator of decoded operands is replaced by an operator that reads the encoded
  operands (``graph/typed_operators.py``). This happens if ``COMPUTE`` has a type with such data and
  weights.

A new dtype needs a row in this table and code that emits its products (``instructions``). It needs
an epilogue (``operators/epilogues.py``) if its sums are finished in another way. This module is
cheap to import, because a pipeline file is checked without TVM or NumPy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
from chameleon_core.plugin_api import FLOAT32 as _FLOAT32

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FLOAT32, FLOAT16, BFLOAT16 = _FLOAT32, "float16", "bfloat16"
UINT8, INT8, INT7, INT32 = "uint8", "int8", "int7", "int32"
_INT16, _UINT16 = "int16", "uint16"


@attrs.frozen(kw_only=True)
class StorageType:
    """The way in which a tensor's numbers are stored.

    Attributes:
        name: Name of the storage type.
        bits: Number of bits of each number.
        storage_dtype: Dtype of buffers on CPUs. Buffers of bfloat16 hold 16-bit integers, the upper
            halves of float32 numbers, because TVM's own bfloat16 computes in float32.
        low: The smallest integer of the type; 0 for floating-point types.
        high: The largest integer of the type; 0 for floating-point types.
        operands: Dtypes of instructions' operands that can hold all numbers of this type. Types of
            8-bit integers also list int16, which can hold such an integer less its zero point.
        tolerance: Largest accepted error of an output of this type: largest |difference| over
            largest |expected|.
        rounding: Largest relative error of rounding a float32 number to this type; 0 for integers.
    """

    name: str
    bits: int
    storage_dtype: str = attrs.field()
    low: int = 0
    high: int = 0
    operands: tuple[str, ...]
    tolerance: float
    rounding: float = 0.0

    @storage_dtype.default
    def _name_as_dtype(self) -> str:
        return self.name

    @property
    def whole(self) -> bool:
        """Whether the numbers are integers that represent real numbers by a scale."""
        return self.low < self.high

    @property
    def magnitude(self) -> int:
        """The largest magnitude of the type's integers."""
        return max(-self.low, self.high)

    @property
    def symmetric(self) -> int:
        """The largest integer whose negative is in the dtype's range, too, such as 127 for int8."""
        return min(-self.low, self.high)

    @property
    def array_type(self) -> np.dtype[Any]:
        """NumPy's dtype for numbers of this type, or one of ``ml_dtypes`` if NumPy has none."""
        import ml_dtypes  # noqa: PLC0415 - most callers need no NumPy
        import numpy as np  # noqa: PLC0415

        dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, self.name, self.storage_dtype))
        return dtype

    def stored(self, numbers: NDArray[Any]) -> NDArray[Any]:
        """Round numbers to this floating-point type, ties to even.

        The result is an array of ``storage_dtype``, as kernels store it. For bfloat16, this is an
        array of 16-bit integers with the numbers' bits.

        Args:
            numbers: Array of float32 or of this type. Numbers beyond the largest number of this
                type become infinite. An array of ``storage_dtype`` is returned unchanged.
        """
        import numpy as np  # noqa: PLC0415 - most callers need no NumPy

        if numbers.dtype == self.storage_dtype:
            return numbers
        with np.errstate(over="ignore"):
            return numbers.astype(self.array_type, copy=False).view(self.storage_dtype)

    def real(self, numbers: NDArray[Any]) -> NDArray[np.float32]:
        """Convert numbers of this floating-point type to float32, exactly.

        Args:
            numbers: Array of float32, of this type, or of ``storage_dtype``, as kernels store it.
                For bfloat16, the latter holds the numbers' bits as 16-bit integers.
        """
        if numbers.dtype == self.storage_dtype:
            numbers = numbers.view(self.array_type)
        values: NDArray[np.float32] = numbers.astype(FLOAT32, copy=False)
        return values

    def rounded(self, numbers: NDArray[Any]) -> NDArray[np.float32]:
        """Round numbers to this floating-point type and return them as float32."""
        return self.real(self.stored(numbers))


_DEFAULT_TOLERANCE = 1e-4
"""Tolerance for sums of some thousand float32 products. The error of a wrong sum is larger by
orders of magnitude."""

STORAGE = {
    kind.name: kind
    for kind in (
        StorageType(name=FLOAT32, bits=32, operands=(FLOAT32,), tolerance=_DEFAULT_TOLERANCE),
        # Half precision rounds each output and each input once.
        StorageType(
            name=FLOAT16, bits=16, operands=(FLOAT16, FLOAT32), tolerance=2e-3, rounding=2.0**-11
        ),
        StorageType(
            name=BFLOAT16,
            bits=16,
            storage_dtype=_UINT16,
            operands=(_UINT16, FLOAT32),
            tolerance=1.6e-2,
            rounding=2.0**-8,
        ),
        # If the largest number is near 255, a difference of one passes and a difference of two does
        # not. A result almost half-way between two integers may be rounded to either. The reason is
        # that a product and a sum of float32 may be one instruction or two.
        StorageType(name=UINT8, bits=8, high=255, operands=(UINT8, _INT16), tolerance=1.5 / 255.0),
        StorageType(
            name=INT8, bits=8, low=-128, high=127, operands=(INT8, _INT16), tolerance=1.5 / 255.0
        ),
        # The sum of two products of bytes and int7 weights fits into 16 bits.
        StorageType(
            name=INT7,
            bits=7,
            storage_dtype=INT8,
            low=-64,
            high=64,
            operands=(INT8, _INT16),
            tolerance=1.5 / 255.0,
        ),
    )
}
"""Storage types by name."""


@attrs.frozen(kw_only=True)
class ComputeType:
    """The dtypes of an operator's operands, sums and output.

    Attributes:
        name: Name by which an operator's ``dtype`` refers to the type; usually the name of the
            weights' storage type.
        data: Storage type of the data, and of both sides of a product without constants.
        weights: Storage type of constant weights.
        sums: Dtype of sums of products.
        outputs: Permitted dtypes of the output. The first is the default.
        variant_of: Name that pipelines and results use for this type, if it is a variant of another
            type; else empty.
    """

    name: str
    data: StorageType
    weights: StorageType
    sums: str = FLOAT32
    outputs: tuple[str, ...]
    variant_of: str = ""

    @property
    def quantized(self) -> bool:
        """Whether the data are integers with a scale and a zero point."""
        return self.data.whole


def _floating(name: str, *outputs: str) -> ComputeType:
    return ComputeType(name=name, data=STORAGE[name], weights=STORAGE[name], outputs=outputs)


def _integers(name: str, variant_of: str = "") -> ComputeType:
    return ComputeType(
        name=name,
        data=STORAGE[UINT8],
        weights=STORAGE[name],
        sums=INT32,
        outputs=(FLOAT32, UINT8),
        variant_of=variant_of,
    )


COMPUTE = {
    kind.name: kind
    for kind in (
        _floating(FLOAT32, FLOAT32),
        _floating(FLOAT16, FLOAT16, FLOAT32),
        _floating(BFLOAT16, BFLOAT16, FLOAT32),
        _integers(INT8),
        _integers(INT7, INT8),
    )
}
"""Compute types by name."""

REDUCED = tuple(name for name in COMPUTE if name != FLOAT32)
"""Names of the compute types that can replace float32 in a network."""
HALVES = tuple(name for name in REDUCED if not COMPUTE[name].quantized)
"""Names of the 16-bit floating-point compute types, whose sums are float32."""
WEIGHTED = tuple(COMPUTE)
"""Names of the compute types of convolutions and of products with constant weights."""
VARYING = tuple(name for name, kind in COMPUTE.items() if not kind.variant_of)
"""Names of the compute types of products of two variable sides. Variants such as int7, which differ
only in the range of constant weights, are not among them."""

LARGEST_PRODUCT = STORAGE[UINT8].high * STORAGE[INT8].magnitude
"""Largest magnitude of a product of uint8 data, less their zero point, and an int8 weight."""
LARGEST_DIFFERENCES = STORAGE[UINT8].high ** 2
"""Largest magnitude of a product of two uint8 numbers, each less its zero point."""
MOST_ELEMENTS = 2**31 - 1
"""The most elements of a tensor, because kernels count them in int32."""

LARGEST_SUM = 2**31 - 1
"""Largest sum that a 32-bit integer can hold."""


def array_type(dtype: str) -> np.dtype[Any]:
    """NumPy's dtype object for the name of any dtype, such as ``bfloat16``.

    Args:
        dtype: The name, such as ``bfloat16``.
    """
    import numpy as np  # noqa: PLC0415 - most callers need no NumPy

    return STORAGE[dtype].array_type if dtype in STORAGE else np.dtype(dtype)


def tolerance_of(dtype: str) -> float:
    """The largest accepted error of outputs of a dtype.

    The error is the largest difference from the reference, divided by the largest absolute output
    of the reference.

    Args:
        dtype: Name of the dtype. An unknown dtype has the tolerance of float32.
    """
    return STORAGE[dtype].tolerance if dtype in STORAGE else _DEFAULT_TOLERANCE


def display_name(dtype: str) -> str:
    """The name of a dtype for display: ``int8`` for its variant ``int7``, else ``dtype`` itself.

    Args:
        dtype: Name of a compute type, or any other string, which is returned unchanged.
    """
    return (dtype in COMPUTE and COMPUTE[dtype].variant_of) or dtype


UNROUNDED = frozenset({BFLOAT16})
"""The dtypes with which TVM computes in float32, without rounding a number before it is stored."""

FLOATING_IN = {kind.storage_dtype: kind for kind in STORAGE.values() if not kind.whole}
"""The floating-point storage types, by the dtype of instructions' operands and of buffers on
CPUs."""
