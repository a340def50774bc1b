"""The base classes of instructions: what they compute, how they are emitted, what they need.

Templates are written for a kind of instruction (:class:`Dot`, :class:`.TileProduct`), so another
CPU's instruction needs only one more class. Its tests follow from its method ``meaning``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from chameleon_core.plugin_api import ChameleonError
from numpy.typing import NDArray

from chameleon_tvm._instructions.records import INSTRUCTIONS
from chameleon_tvm._types import BFLOAT16, INT8, STORAGE

Expr = Any
Array = NDArray[Any]

BFLOAT16_BITS = STORAGE[BFLOAT16].storage_dtype
"""The dtype of bfloat16 operands in instructions: integers that hold the bits."""


_PACKAGE_RECORDS = {record.name: record for record in INSTRUCTIONS}


class Instruction(ABC):
    """A machine instruction, or a short sequence of machine instructions that acts as one.

    Attributes:
        name: Name of the instruction in assembly language, unique among all instructions.
        summary: One line that says what the instruction computes.
        architecture: Architecture of the processors that have the instruction, by Linux's name
            (``x86_64``, ``aarch64``), or a kind of target (``cuda``). Empty if every CPU has the
            instruction.
        features: LLVM's names of the features that the target must have. For a GPU, the first
            architecture that has the instruction. Empty if ``architecture`` suffices.
        mnemonics: Assembly mnemonics. The code of a function that uses the instruction contains at
            least one of these.
        permission: Permission that a process must request from the operating system before its
            threads start. Empty if the instruction needs no permission.
        prelude: LLVM IR of functions that the emitted code calls, for dtypes that TVM's code
            generator does not support. ``emission.with_instructions`` adds this IR to a function.
        flushes: Whether denormal operands and results count as zero, whatever mode the CPU is set
            to.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    architecture: ClassVar[str] = ""
    features: ClassVar[frozenset[str]] = frozenset()
    mnemonics: ClassVar[tuple[str, ...]]
    permission: ClassVar[str] = ""
    prelude: ClassVar[str] = ""
    flushes: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        """Copies summary, architecture and features from this package's record of the class."""
        super().__init_subclass__()
        record = _PACKAGE_RECORDS.get(cls.__dict__.get("name", ""))
        if record is not None:
            cls.summary, cls.architecture = record.summary, record.architecture
            cls.features = frozenset(record.features)

    @abstractmethod
    def meaning(self, sums: Array, data: Array, weights: Array) -> Array:
        """Compute what the instruction computes, with loops over arrays, as a reference for tests.

        Shapes depend on the kind of instruction (``Dot``, ``TileProduct``, ``Fragments``).

        Args:
            sums: The sums before the instruction. This array stays unchanged.
            data: The left side of the product.
            weights: The right side of the product, in the order in which it is stored.

        Returns:
            The new sums, with the shape of ``sums``.
        """


class Dot(Instruction):
    """``sums[l] += sum over k of data[k] * weights[l, k]`` in every lane ``l`` of a vector.

    Lanes are output channels. All lanes read the same group of ``depth`` neighbouring input
    channels, which a template broadcasts as one machine word.

    Attributes:
        data: Dtype of the input as the instruction reads it.
        weights: Dtype of the weights as they are stored.
        sums: Dtype of the sums.
        depth: Number of elements of a group, ``K``.
        vectors: The sizes in bytes of a vector of sums that the instruction supports, each with the
            CPU features that it needs in addition to ``features``.
        cost: Time of one instruction over the time of a multiply-add of float32 vectors of the same
            size.
        largest_weight: Largest magnitude of weights for which the sums of products are exact,
            whatever the data. None if the sums are exact for all weights of the dtype.
        temporaries: Number of vector registers that the instruction needs in addition to those of
            sums, group and weights.
    """

    data: ClassVar[str]
    weights: ClassVar[str]
    sums: ClassVar[str]
    depth: ClassVar[int]
    vectors: ClassVar[Mapping[int, frozenset[str]]]
    cost: ClassVar[float] = 1.0
    largest_weight: ClassVar[int | None] = None
    temporaries: ClassVar[int] = 0

    @property
    def word(self) -> str:
        """The dtype of one number that holds a whole group of ``depth`` data elements.

        Such a number can be broadcast to all lanes.
        """
        if self.depth == 1:
            return self.data
        return f"int{8 * self.depth * np.dtype(self.data).itemsize}"

    def lanes(self, vector_bytes: int) -> int:
        """The number of sums that one vector register holds.

        Args:
            vector_bytes: Size of the register in bytes.
        """
        return vector_bytes // np.dtype(self.sums).itemsize

    def needs(self, vector_bytes: int) -> frozenset[str]:
        """The CPU features that the instruction needs for vectors of some size.

        Args:
            vector_bytes: The size in bytes, a key of ``vectors``.
        """
        return self.features | self.vectors[vector_bytes]

    def check_weights(self, weights: Array) -> None:
        """Raise an error if a weight is too large for the instruction to multiply exactly.

        Args:
            weights: Array of any shape.

        Raises:
            ChameleonError: The magnitude of a weight is above ``largest_weight``.
        """
        limit = self.largest_weight
        if limit is None:
            return
        smallest, largest = int(weights.min(initial=0)), int(weights.max(initial=0))
        if smallest < -limit or largest > limit:
            raise ChameleonError(
                f"{self.name} is exact with weights between -{limit} and {limit}, and there are "
                f"some between {smallest} and {largest}",
                hint=f"Compute the operator in {INT8}, or quantize its weights to seven bits.",
            )

    @abstractmethod
    def meaning(self, sums: Array, data: Array, weights: Array) -> Array:
        """Compute what the instruction computes, with loops over arrays.

        Args:
            sums: The sums before the instruction, shape (lanes,).
            data: The group that all lanes read, shape (K,).
            weights: The weights as they are stored, shape (lanes, K).

        Returns:
            The new sums, shape (lanes,).
        """

    @abstractmethod
    def emit(self, sums: Expr, data: Expr, weights: Expr, lanes: int) -> Expr:
        """Return the instruction as an expression of TensorIR.

        Args:
            sums: A vector of ``lanes`` elements of dtype ``self.sums``.
            data: A vector of ``lanes`` equal elements of dtype ``self.word``.
            weights: A vector of ``lanes * depth`` elements of dtype ``self.weights``. The ``depth``
                weights of a lane are next to each other.
            lanes: Number of lanes of the vector of sums.

        Returns:
            The expression of the new sums.
        """


class IntegerDot(Dot):
    """A dot product of integers whose products are exact and whose sums are modulo 2**32."""

    sums: ClassVar[str] = "int32"

    def meaning(self, sums: Array, data: Array, weights: Array) -> Array:
        result = sums.copy()
        for lane in range(len(sums)):
            for k in range(self.depth):
                result[lane] += np.int32(data[k]) * np.int32(weights[lane, k])
        return result
