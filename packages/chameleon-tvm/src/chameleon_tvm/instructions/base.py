"""An instruction as templates see it: its meaning, how it is emitted, and its requirements.

A template is written for a kind of instruction (:class:`Dot`, :class:`.TileProduct`), not for one
of them: another CPU's is one more small file. The tests of an instruction come from its ``meaning``
alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from chameleon_core.errors import ChameleonError
from numpy.typing import NDArray

from chameleon_tvm.instructions.records import INSTRUCTIONS
from chameleon_tvm.types import BFLOAT16, INT8, STORAGE

Expr = Any
Array = NDArray[Any]

BFLOAT16_BITS = STORAGE[BFLOAT16].storage_dtype
"""The element type of operands of bfloat16."""


_OWN = {record.name: record for record in INSTRUCTIONS}


class Instruction(ABC):
    """One instruction, or the few that take the place of one.

    Attributes:
        name: as assembly language calls it, so that no two have the same.
        summary: what it computes, in one line.
        architecture: of the processors that have it, by Linux's name (``x86_64``, ``aarch64``), or
            a kind of target (``cuda``); empty if every CPU has it.
        features: what a target has to have, by LLVM's names, of a GPU the first architecture that
            has it; empty if ``architecture`` says all.
        mnemonics: one of which the code of a function that uses it contains.
        permission: what a process has to ask the operating system for before its threads start;
            empty if there is nothing.
        prelude: LLVM IR that the emission calls into, for types that TVM's code generator lacks;
            ``emission.using`` puts it into a function.
        flushes: whether denormal operands and results count as zero, whatever the CPU is set to.
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
        """Takes from this package's record what is said of an instruction before it is imported."""
        super().__init_subclass__()
        record = _OWN.get(cls.__dict__.get("name", ""))
        if record is not None:
            cls.summary, cls.architecture = record.summary, record.architecture
            cls.features = frozenset(record.features)

    @abstractmethod
    def meaning(self, sums: Array, data: Array, weights: Array) -> Array:
        """Its meaning, as loops over arrays.

        Args:
            sums: what products are added to; unchanged afterwards.
            data: the left side.
            weights: the right side, as it is stored.

        Returns:
            The new sums. Shapes are those of the kind of instruction.
        """


class Dot(Instruction):
    """``sums[l] += sum over k of data[k] * weights[l, k]`` in every lane ``l`` of a vector.

    A group of ``depth`` neighbouring input channels is the same in all lanes, which are output
    channels: a template broadcasts the group as one word.

    Attributes:
        data: dtype of the input as the instruction reads it.
        weights: dtype of the weights as they are stored.
        sums: dtype of the sums.
        depth: elements of a group, ``K``.
        vectors: the sizes in bytes of vectors of sums that it is there for, and what features each
            takes beside ``features``.
        cost: how long one takes, in time of a multiply-add of float32 vectors of the same size.
        largest_weight: the magnitude of weights up to which it adds up products exactly, whatever
            the data; None if that holds of all numbers of their type.
        temporaries: vector registers that it needs beside sums, a group and weights.
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
        """Dtype of a group as one number, which can be broadcast."""
        if self.depth == 1:
            return self.data
        return f"int{8 * self.depth * np.dtype(self.data).itemsize}"

    def lanes(self, vector_bytes: int) -> int:
        """Sums in a vector register.

        Args:
            vector_bytes: size of the register.
        """
        return vector_bytes // np.dtype(self.sums).itemsize

    def needs(self, vector_bytes: int) -> frozenset[str]:
        """The features that it takes for vectors of a size, one of ``vectors``."""
        return self.features | self.vectors[vector_bytes]

    def check_weights(self, weights: Array) -> None:
        """Refuse weights that it does not multiply exactly.

        Args:
            weights: of any shape.

        Raises:
            ChameleonError: some are beyond ``largest_weight``.
        """
        most = self.largest_weight
        if most is None:
            return
        least, largest = int(weights.min(initial=0)), int(weights.max(initial=0))
        if least < -most or largest > most:
            raise ChameleonError(
                f"{self.name} is exact with weights between -{most} and {most}, and there are some "
                f"between {least} and {largest}",
                hint=f"Compute the operator in {INT8}, or quantize its weights to seven bits.",
            )

    @abstractmethod
    def meaning(self, sums: Array, data: Array, weights: Array) -> Array:
        """Its meaning, as loops over arrays.

        Args:
            sums: shape (lanes,).
            data: shape (K,).
            weights: shape (lanes, K), as stored.

        Returns:
            The new sums, shape (lanes,).
        """

    @abstractmethod
    def emit(self, sums: Expr, data: Expr, weights: Expr, lanes: int) -> Expr:
        """The instruction as an expression of TensorIR.

        Args:
            sums: a vector of ``lanes`` elements of type ``sums``.
            data: a vector of ``lanes`` equal elements of type ``word``.
            weights: a vector of ``lanes * depth`` elements of type ``weights``, a lane's own
                ``depth`` ones next to each other.
            lanes: of the vector.

        Returns:
            The new sums.
        """


class IntegerDot(Dot):
    """One whose products are exact in sums of 32 bits that wrap around."""

    sums: ClassVar[str] = "int32"

    def meaning(self, sums: Array, data: Array, weights: Array) -> Array:
        result = sums.copy()
        for lane in range(len(sums)):
            for k in range(self.depth):
                result[lane] += np.int32(data[k]) * np.int32(weights[lane, k])
        return result
