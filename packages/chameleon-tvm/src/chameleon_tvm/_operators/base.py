"""The base class of operators, which compute a task in TensorIR and, independently, in NumPy."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any

import numpy as np
from chameleon_core.api import Registry
from chameleon_core.plugin_api import (
    KINDS,
    Arrays,
    ConfigError,
    OperatorRecord,
    PluginError,
    Task,
)
from numpy.typing import NDArray

from chameleon_tvm._late_tvm import tvm
from chameleon_tvm._operators.records import OPERATORS
from chameleon_tvm._types import BFLOAT16, FLOAT32, UINT8, StorageType, array_type, tolerance_of

PACKAGE_OPERATORS = {record.name: record for record in OPERATORS}
"""The records of this package's operators by name. No plugin can replace them (``Kind.unique``), so
worker processes load no plugins for them."""


class Operator(ABC):
    """Computes a task in two independent ways: as a TensorIR function and in NumPy.

    Logical arrays have the axis order of textbooks: N, C, H, W for images and O, I, H, W for
    filters. Physical arrays have the layouts that the task names and that ``prim_func`` takes.
    Modules of subclasses import TVM from ``late_tvm``, so that a vendor's kernel can be checked
    without importing TVM.

    Args:
        task: The task to compute.

    Attributes:
        task: The task to compute.
    """

    constants: frozenset[int] = frozenset()
    """Positions of the inputs that never change between runs (weights), so that they may be packed
    beforehand."""

    def __init__(self, task: Task) -> None:
        self.task = task

    @cached_property
    def spec(self) -> Any:
        """The task's arguments as an attrs object, of the class that the operator registers."""
        return record_of(self.task).arguments.of(self.task)  # type: ignore[union-attr]

    @abstractmethod
    def prim_func(self) -> tvm.tirx.PrimFunc:
        """The unscheduled TensorIR function on physical arrays: inputs first, then outputs."""

    @abstractmethod
    def inputs(self) -> Arrays:
        """Random logical inputs for checks and measurements, the same in every process."""

    @abstractmethod
    def reference(self, inputs: Arrays) -> Arrays:
        """Expected logical outputs in float64, computed by NumPy from logical inputs."""

    @property
    def tolerance(self) -> float:
        """Largest error that outputs may have; by default float32's tolerance.

        The error is the largest |difference| from the reference, over the largest |expected|.
        """
        return tolerance_of(FLOAT32)

    @property
    def flop(self) -> float:
        """Number of floating-point operations of one evaluation."""
        return self.task.flop

    def arrange(self, inputs: Arrays) -> Arrays:
        """Convert logical inputs to physical inputs."""
        return [self.arranged(index, array) for index, array in enumerate(inputs)]

    def arranged(self, index: int, array: NDArray[Any]) -> NDArray[Any]:
        """Convert an input from its logical form to the layout and dtype that ``prim_func`` takes.

        Args:
            index: Position of the input in ``inputs()``.
            array: The logical array.
        """
        del index
        return array

    def logical(self, outputs: Arrays) -> Arrays:
        """Convert physical outputs to logical outputs."""
        return outputs


class TypedOperator(Operator):
    """An operator whose arguments name the dtype of its output."""

    @property
    def tolerance(self) -> float:
        return tolerance_of(self.spec.output_dtype)


def is_operator(kind: str) -> bool:
    """Whether this package or an installed plugin defines an operator of this kind."""
    return kind in PACKAGE_OPERATORS or kind in Registry.default().names("operators")


def record_of(task: Task) -> OperatorRecord:
    """The plugin record of a task's kind of operator.

    Raises:
        ConfigError: No installed distribution defines this kind of operator.
    """
    record: OperatorRecord | None = PACKAGE_OPERATORS.get(task.operator)
    if record is not None:
        return record
    try:
        record = Registry.default().record("operators", task.operator)
    except PluginError as error:
        raise ConfigError(
            f"task {task.name!r}: there is no operator {task.operator!r}", hint=error.hint
        ) from error
    return record


def operator_of(task: Task) -> Operator:
    """Make the operator that a task describes, with its TensorIR function and its reference.

    Args:
        task: The task.

    Raises:
        ConfigError: No installed distribution defines this kind of operator.
        PluginError: The code of the operator's plugin fails.
    """
    operator: Operator = KINDS["operators"].make(record_of(task), task)
    return operator


def is_for_cpu(target: str) -> bool:
    """Whether a target is a CPU.

    Args:
        target: The canonical target as JSON, or a kind of target with options, such as ``llvm
            -mcpu=...``.
    """
    kind = json.loads(target)["kind"] if target.startswith("{") else target.split(maxsplit=1)[0]
    return bool(kind == "llvm")


def seeded_array(shape: tuple[int, ...], dtype: str, stream: int) -> np.ndarray[Any, Any]:
    """Random numbers in [-1, 1) for an operator's input, the same in every process.

    They depend only on the shape and ``stream``, so operators that differ only in their layouts get
    the same logical numbers.

    Args:
        shape: Logical shape of the array.
        stream: A number that differs between the inputs of an operator.
    """
    rng = np.random.default_rng([20200426, stream, *shape])
    # Every worker makes weights, perhaps of hundreds of megabytes. So they are made in place in
    # float32.
    array = rng.random(shape, np.float32)
    array *= 2.0
    array -= 1.0
    return array.astype(array_type(dtype), copy=False)


def seeded_integers(shape: tuple[int, ...], kind: StorageType, stream: int) -> NDArray[Any]:
    """Random integers of a dtype's whole range for an operator's input, the same in every process.

    Args:
        shape: Shape of the array.
    """
    rng = np.random.default_rng([20200426, stream, *shape])
    return rng.integers(kind.low, kind.high, shape, kind.storage_dtype, endpoint=True)


def to_comparable(outputs: Arrays) -> Arrays:
    """Convert bfloat16 and uint8 outputs to float32, so that they can be compared with a reference.

    NumPy has no bfloat16. References are floating-point numbers, and a difference of unsigned
    integers would never be negative.
    """
    narrow = {BFLOAT16, UINT8}
    return [array.astype(np.float32) if array.dtype.name in narrow else array for array in outputs]
