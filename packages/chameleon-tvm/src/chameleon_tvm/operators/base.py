"""Operators: a task made computable, in TensorIR and, independently of TVM, in NumPy."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any

import numpy as np
from chameleon_core.errors import ConfigError
from chameleon_core.plugins import KINDS, OperatorRecord, UnknownNameError, default_registry
from chameleon_core.plugins.factory import make
from chameleon_core.stages import Arrays
from chameleon_core.task import Task
from numpy.typing import NDArray

from chameleon_tvm.late_tvm import tvm
from chameleon_tvm.operators.records import OPERATORS
from chameleon_tvm.types import BFLOAT16, FLOAT32, UINT8, StorageType, array_type, tolerance_of

OWN = {record.name: record for record in OPERATORS}
"""The kinds of operators of this package, by name: they are its own whatever else is installed
(``Kind.unique``), so that worker processes load no plugins for them."""


class Operator(ABC):
    """A task's computation.

    Logical arrays have the layouts of the textbook (N, C, H, W for images; O, I, H, W for filters).
    Physical ones have the layouts that the task asks for and ``prim_func`` takes. Its module takes
    TVM from ``late_tvm``: a vendor's kernel is checked without importing it.

    Args:
        task: what to compute.

    Attributes:
        task: the same.
    """

    constants: frozenset[int] = frozenset()
    """Which inputs never change between runs (weights), so that they may be packed beforehand."""

    def __init__(self, task: Task) -> None:
        self.task = task

    @cached_property
    def spec(self) -> Any:
        """The arguments of the task: an instance of the ``arguments`` of its kind's record."""
        return record_of(self.task).arguments.of(self.task)  # type: ignore[union-attr]

    @abstractmethod
    def prim_func(self) -> tvm.tirx.PrimFunc:
        """The unscheduled computation on physical arrays: inputs, then outputs."""

    @abstractmethod
    def inputs(self) -> Arrays:
        """Deterministic logical inputs, the same in every process."""

    @abstractmethod
    def reference(self, inputs: Arrays) -> Arrays:
        """Expected logical outputs in float64, computed by NumPy from logical inputs."""

    @property
    def tolerance(self) -> float:
        """Largest accepted |difference| over the largest |expected|; that of float32 by default."""
        return tolerance_of(FLOAT32)

    @property
    def flop(self) -> float:
        """Floating-point operations of one evaluation."""
        return self.task.flop

    def arrange(self, inputs: Arrays) -> Arrays:
        """Physical inputs from logical ones."""
        return [self.arranged(index, array) for index, array in enumerate(inputs)]

    def arranged(self, index: int, array: NDArray[Any]) -> NDArray[Any]:
        """One physical input from a logical one.

        Args:
            index: which input it is.
            array: the logical one.
        """
        del index
        return array

    def logical(self, outputs: Arrays) -> Arrays:
        """Logical outputs from physical ones."""
        return outputs


def is_operator(kind: str) -> bool:
    """Whether a task's operator is one that is computed here: this package's or a plugin's."""
    return kind in OWN or kind in default_registry().names("operators")


def record_of(task: Task) -> OperatorRecord:
    """The record that registers the kind of a task's operator.

    Raises:
        ConfigError: no such kind is installed.
    """
    record: OperatorRecord | None = OWN.get(task.operator)
    if record is not None:
        return record
    try:
        record = default_registry().record("operators", task.operator)
    except UnknownNameError as error:
        raise ConfigError(
            f"task {task.name!r}: there is no operator {task.operator!r}", hint=error.hint
        ) from error
    return record


def operator_of(task: Task) -> Operator:
    """The operator a task describes.

    Raises:
        ConfigError: no such kind of operator is installed.
        PluginError: its own code fails.
    """
    operator: Operator = make(KINDS["operators"], record_of(task), task)
    return operator


def is_for_cpu(target: str) -> bool:
    """Whether a task's target is a CPU: canonical JSON, or in short its kind with options."""
    kind = json.loads(target)["kind"] if target.startswith("{") else target.split(maxsplit=1)[0]
    return bool(kind == "llvm")


def seeded_array(shape: tuple[int, ...], dtype: str, stream: int) -> np.ndarray[Any, Any]:
    """Numbers in [-1, 1) that depend on nothing but their shape and stream.

    Not on the task: two layouts of one operator see the same logical numbers.
    """
    rng = np.random.default_rng([20200426, stream, *shape])
    # Every worker makes weights, hundreds of megabytes perhaps: in place, in single precision.
    array = rng.random(shape, np.float32)
    array *= 2.0
    array -= 1.0
    return array.astype(array_type(dtype), copy=False)


def seeded_integers(shape: tuple[int, ...], kind: StorageType, stream: int) -> NDArray[Any]:
    """Integers of a type's whole range that depend on nothing but their shape and stream.

    Args:
        shape: of the array.
        kind: its type.
        stream: another number for each array of an operator.
    """
    rng = np.random.default_rng([20200426, stream, *shape])
    return rng.integers(kind.low, kind.high, shape, kind.storage_dtype, endpoint=True)


def widened(outputs: Arrays) -> Arrays:
    """Outputs that can be compared: bfloat16, which is foreign to NumPy, and uint8 as float32.

    References are floating-point numbers, and a difference of unsigned integers is never negative.
    """
    narrow = {BFLOAT16, UINT8}
    return [array.astype(np.float32) if array.dtype.name in narrow else array for array in outputs]
