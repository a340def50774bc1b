"""The table of types: how numbers are stored, and what operators multiply and write.

A *storage type* says how the numbers of a tensor lie in memory: bits, dtype of buffers, range of
whole numbers, and rounding of float32. A *compute type* is what an operator's ``dtype`` and a
pipeline's ``precision`` name. It has the storage types of data and weights, the type of their sums,
and the permitted outputs. ``int7`` differs from ``int8`` by the range of its weights alone and is
its variant: pipelines and results say ``int8``, tasks tell both apart.

A network gets its types in three steps, and each of them asks this table and no name of a type:

- *encode*: an operator's data are rounded to their storage type and back
  (``quantize/types.py``). Whole numbers have a scale and a zero point beside it.
- *move*: operators that only move or select numbers work on encoded ones (``graph/moving.py``).
- *decode*: an operator of decoded operands becomes one that reads them encoded
  (``graph/typed_operators.py``), if ``COMPUTE`` has a type with such data and weights.

A new type is a row here, an emission of its products (``instructions``), and an epilogue if its
sums are finished in another way (``operators/epilogues.py``). Cheap to import: a pipeline file is
checked without TVM or NumPy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
from chameleon_core import dtypes

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FLOAT32, FLOAT16, BFLOAT16 = dtypes.FLOAT32, "float16", "bfloat16"
UINT8, INT8, INT7, INT32 = "uint8", "int8", "int7", "int32"
_INT16, _UINT16 = "int16", "uint16"


@attrs.frozen(kw_only=True)
class StorageType:
    """How numbers are stored.

    Attributes:
        name: of the type.
        bits: that a number takes.
        storage_dtype: dtype of buffers on CPUs. Those of bfloat16 are 16-bit integers, the upper
            halves of float32 numbers: TVM computes with a bfloat16 of its own in float32.
        low: the least number, of whole numbers; 0 of others.
        high: the largest number, of whole numbers; 0 of others.
        operands: types that instructions may read that hold all of these numbers; 16-bit integers
            hold those of 8 bits less a zero point as well.
        tolerance: largest |difference| over the largest |expected| that is accepted of an output.
        rounding: the largest relative error of a float32 number that is rounded; 0 of whole ones.
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
    def _own_name(self) -> str:
        return self.name

    @property
    def whole(self) -> bool:
        """Whether these are whole numbers, which stand for real ones by scale and zero point."""
        return self.low < self.high

    @property
    def magnitude(self) -> int:
        """The largest magnitude of a whole number."""
        return max(-self.low, self.high)

    @property
    def symmetric(self) -> int:
        """The largest whole number whose negative is one, too."""
        return min(-self.low, self.high)

    @property
    def array_type(self) -> np.dtype[Any]:
        """NumPy's type of such numbers, by another library if NumPy has none."""
        import ml_dtypes  # noqa: PLC0415 - only where it is asked for
        import numpy as np  # noqa: PLC0415

        dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, self.name, self.storage_dtype))
        return dtype

    def stored(self, numbers: NDArray[Any]) -> NDArray[Any]:
        """Numbers of a floating type as buffers hold them: the nearest ones, of two the even one.

        Args:
            numbers: of float32, of this type, or as buffers hold them. Those beyond the largest
                one become infinite.
        """
        import numpy as np  # noqa: PLC0415 - see ``array_type``

        if numbers.dtype == self.storage_dtype:
            return numbers
        with np.errstate(over="ignore"):
            return numbers.astype(self.array_type, copy=False).view(self.storage_dtype)

    def real(self, numbers: NDArray[Any]) -> NDArray[np.float32]:
        """Numbers of a floating type as float32, exactly.

        Args:
            numbers: as for ``stored``.
        """
        if numbers.dtype == self.storage_dtype:
            numbers = numbers.view(self.array_type)
        values: NDArray[np.float32] = numbers.astype(FLOAT32, copy=False)
        return values

    def rounded(self, numbers: NDArray[Any]) -> NDArray[np.float32]:
        """The nearest numbers of a floating type in float32."""
        return self.real(self.stored(numbers))


_USUAL = 1e-4
"""Some thousand float32 products are summed; a wrong one is off by orders of magnitude more."""

STORAGE = {
    one.name: one
    for one in (
        StorageType(name=FLOAT32, bits=32, operands=(FLOAT32,), tolerance=_USUAL),
        # Half precision rounds an output, and its inputs once.
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
        # A difference of one is accepted and of two is not, if the largest number is near 255:
        # what is almost half-way between two numbers may be rounded to either, since products and
        # sums of float32 may be computed in one instruction, or in two.
        StorageType(name=UINT8, bits=8, high=255, operands=(UINT8, _INT16), tolerance=1.5 / 255.0),
        StorageType(
            name=INT8, bits=8, low=-128, high=127, operands=(INT8, _INT16), tolerance=1.5 / 255.0
        ),
        # Pairs of products of bytes with such weights fit into 16 bits.
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
    """The types of an operator's operands, sums and output.

    Attributes:
        name: as operators call it, mostly that of the weights.
        data: of what is multiplied by weights, and of both sides if neither is constant.
        weights: of constant weights.
        sums: dtype of sums of products.
        outputs: what may be written; the first if nothing is said.
        variant_of: the type that pipelines and results name instead; empty for others.
    """

    name: str
    data: StorageType
    weights: StorageType
    sums: str = FLOAT32
    outputs: tuple[str, ...]
    variant_of: str = ""

    @property
    def quantized(self) -> bool:
        """Whether data are whole numbers with a scale and a zero point."""
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
    one.name: one
    for one in (
        _floating(FLOAT32, FLOAT32),
        _floating(FLOAT16, FLOAT16, FLOAT32),
        _floating(BFLOAT16, BFLOAT16, FLOAT32),
        _integers(INT8),
        _integers(INT7, INT8),
    )
}
"""Compute types by name."""

REDUCED = tuple(name for name in COMPUTE if name != FLOAT32)
"""Those that operators of a float32 network may be computed in instead."""
HALVES = tuple(name for name in REDUCED if not COMPUTE[name].quantized)
"""Those of two bytes, whose sums are float32."""
WEIGHTED = tuple(COMPUTE)
"""Those of convolutions and products with constant weights."""
VARYING = tuple(name for name, one in COMPUTE.items() if not one.variant_of)
"""Those of products neither side of which is constant: no weights have a range of their own."""

LARGEST_PRODUCT = STORAGE[UINT8].high * STORAGE[INT8].magnitude
"""Magnitude of a product of a uint8, less a zero point, and an int8 weight."""
LARGEST_DIFFERENCES = STORAGE[UINT8].high ** 2
"""Magnitude of a product of two uint8, each less a zero point."""
LARGEST_SUM = 2**31 - 1
"""What sums of 32 bits hold."""


def array_type(dtype: str) -> np.dtype[Any]:
    """NumPy's object for a dtype, in this table or not."""
    import numpy as np  # noqa: PLC0415 - see ``StorageType``

    return STORAGE[dtype].array_type if dtype in STORAGE else np.dtype(dtype)


def tolerance_of(dtype: str) -> float:
    """The accepted error of outputs of a dtype, in this table or not."""
    return STORAGE[dtype].tolerance if dtype in STORAGE else _USUAL


def display_name(dtype: str) -> str:
    """The name of a type, with which variants of one are not told apart.

    Args:
        dtype: of a compute type, or what else is said of a network.
    """
    return (dtype in COMPUTE and COMPUTE[dtype].variant_of) or dtype


FLOATING_IN = {one.storage_dtype: one for one in STORAGE.values() if not one.whole}
"""The floating types by the element type of instructions' operands and of buffers on CPUs."""
