"""Tests that any CPU instruction must pass: functions use it, and results are checked."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from chameleon_core.plugin_api import InstructionRecord, NoOptions
from chameleon_system.api import own_architecture
from numpy.typing import NDArray

from chameleon_tvm._building.lowering import lower_function
from chameleon_tvm._device.cpus.description import is_this_cpu
from chameleon_tvm._device.cpus.features import (
    architecture_of,
    host_features,
    target_features,
    unreported_features,
    used_features,
)
from chameleon_tvm._device.targets import TVMTargets, tvm_target
from chameleon_tvm._instructions.base import BFLOAT16_BITS, Dot, Instruction
from chameleon_tvm._instructions.emission import require_permissions, with_instructions
from chameleon_tvm._instructions.selection import instruction_of
from chameleon_tvm._instructions.tiles import DATA, SUMS, WEIGHTS, TileProduct
from chameleon_tvm._quick_tvm import tirx, tvm
from chameleon_tvm._types import BFLOAT16, STORAGE

Array = NDArray[Any]
Stmt = Any
Operands = dict[str, Array]
"""Arrays by their role (``DATA``, ``WEIGHTS``, ``SUMS``), with cases along the first axis."""

_SEED = 0
_NAMES = (DATA, WEIGHTS, SUMS)


class Trial(ABC):
    """A test of one instruction, used once for each of ``cases`` random and extreme products."""

    cases: int

    def __init__(self, instruction: Instruction) -> None:
        self.instruction = instruction

    @property
    @abstractmethod
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of data, weights and sums of one case."""

    @abstractmethod
    def body(self, buffers: dict[str, Any], case: Any) -> Stmt:
        """Return the statement that adds the products of one case to the case's sums in place.

        Args:
            buffers: One-dimensional buffers by ``DATA``, ``WEIGHTS`` and ``SUMS``, with the dtypes
                of ``arguments``.
        """

    @abstractmethod
    def terms(self, data: Array, weights: Array) -> Array:
        """The products of one case in float64; products of one sum are along the first axis."""

    def operands(self) -> Operands:
        """Random and extreme operands by name, with cases along the first axis."""
        rng = np.random.default_rng(_SEED)
        return {
            holds: random_operands(self._dtype(holds), (self.cases, *self.shapes[holds]), rng)
            for holds in _NAMES
        }

    def arguments(self, operands: Operands) -> list[Array]:
        """The function's arguments: one-dimensional arrays. The function changes the last."""
        return [
            operands[holds].reshape(-1).view(self._buffer_dtype(holds)).copy() for holds in _NAMES
        ]

    def function(self) -> tirx.PrimFunc:
        """The TensorIR function that runs the test: it adds the products of all cases to sums."""
        buffers = {}
        for holds in _NAMES:
            elements = self.cases * int(np.prod(self.shapes[holds]))
            narrower = np.dtype(self._buffer_dtype(holds)).itemsize
            extent = elements * np.dtype(self._dtype(holds)).itemsize // narrower
            buffers[holds] = tirx.decl_buffer([extent], self._buffer_dtype(holds), holds)
        case = tirx.Var("case", "int32")
        body = self.body(buffers, case)
        first, count = tirx.IntImm("int32", 0), tirx.IntImm("int32", self.cases)
        loop = tirx.For(case, first, count, tirx.ForKind.SERIAL, body)
        function = tirx.PrimFunc([*buffers.values()], loop).with_attr("tirx.noalias", True)
        return with_instructions(function, [self.instruction])

    def expected(self, operands: Operands) -> tuple[Array, Array]:
        """The sums that the instruction must compute, and the terms of each sum, in float64."""
        if self.instruction.flushes:
            operands = {
                holds: flush_denormals(array, self._dtype(holds))
                for holds, array in operands.items()
            }
        sums, terms = [], []
        with np.errstate(all="ignore"):
            for data, weights, before in zip(*(operands[holds] for holds in _NAMES), strict=True):
                sums.append(self.instruction.meaning(before, data, weights))
                numbers = (
                    to_float64(data, self._dtype(DATA)),
                    to_float64(weights, self._dtype(WEIGHTS)),
                )
                terms.append([before.astype(np.float64), *self.terms(*numbers)])
        return np.array(sums), np.moveaxis(np.array(terms), 1, 0)

    def _dtype(self, holds: str) -> str:
        """Dtype of an operand, as the instruction names it."""
        return str(getattr(self.instruction, holds))

    def _buffer_dtype(self, holds: str) -> str:
        """Dtype of the function's argument for an operand."""
        return self._dtype(holds)


class DotTrial(Trial):
    """A test of a dot product, for vectors of sums of ``vector_bytes`` bytes."""

    instruction: Dot
    cases = 256

    def __init__(self, instruction: Dot, vector_bytes: int) -> None:
        super().__init__(instruction)
        self.lanes = instruction.lanes(vector_bytes)

    def __str__(self) -> str:
        return f"{self.lanes} lanes"

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        depth = self.instruction.depth
        return {DATA: (depth,), WEIGHTS: (self.lanes, depth), SUMS: (self.lanes,)}

    def body(self, buffers: dict[str, Any], case: Any) -> Stmt:
        lanes, of_weights = self.lanes, self.lanes * self.instruction.depth
        places = [_run(case * lanes, lanes)]
        value = self.instruction.emit(
            tirx.BufferLoad(buffers[SUMS], places),
            tirx.Broadcast(tirx.BufferLoad(buffers[DATA], [case]), lanes),
            tirx.BufferLoad(buffers[WEIGHTS], [_run(case * of_weights, of_weights)]),
            lanes,
        )
        return tirx.BufferStore(buffers[SUMS], value, places)

    def terms(self, data: Array, weights: Array) -> Array:
        return (data * weights).T

    def _buffer_dtype(self, holds: str) -> str:
        return self.instruction.word if holds == DATA else super()._buffer_dtype(holds)


class TileTrial(Trial):
    """A test of a tile product, with a number of rows and a depth."""

    instruction: TileProduct
    cases = 8

    def __init__(self, instruction: TileProduct, rows: int, depth: int) -> None:
        super().__init__(instruction)
        self.rows = rows
        self.depth = depth

    def __str__(self) -> str:
        return f"{self.rows} rows, depth {self.depth}"

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        product = self.instruction
        groups = self.depth // product.pack
        return {
            DATA: (self.rows, self.depth),
            WEIGHTS: (groups, product.columns, product.pack),
            SUMS: (self.rows, product.columns),
        }

    def body(self, buffers: dict[str, Any], case: Any) -> Stmt:
        product = self.instruction
        registers = {
            holds: product.register(number, holds, 0 if holds == WEIGHTS else self.rows, self.depth)
            for number, holds in enumerate(_NAMES)
        }
        start = {holds: case * int(np.prod(shape)) for holds, shape in self.shapes.items()}
        statements = [
            *(
                product.load(registers[name], buffers[name], start[name], registers[name].width)
                for name in _NAMES
            ),
            product.product(registers[SUMS], registers[DATA], registers[WEIGHTS]),
            product.store(registers[SUMS], buffers[SUMS], start[SUMS], product.columns),
        ]
        return product.around([*registers.values()], tirx.SeqStmt(statements))

    def terms(self, data: Array, weights: Array) -> Array:
        columns = np.moveaxis(weights, 1, 2).reshape(-1, self.instruction.columns)
        return data.T[:, :, None] * columns[:, None, :]


def trials_of(instruction: Instruction, features: frozenset[str]) -> Sequence[Trial]:
    """The tests of an instruction on a CPU with some of LLVM's features; none if it lacks them.

    A dot product has one test for each vector size, a tile product one more with a row less.
    """
    if isinstance(instruction, Dot):
        sizes = [size for size in instruction.vectors if instruction.needs(size) <= features]
        return [DotTrial(instruction, size) for size in sizes]
    if isinstance(instruction, TileProduct) and instruction.features <= features:
        rows, depth = instruction.rows, instruction.depth
        smaller_depth = depth - instruction.pack if instruction.shorter else depth
        return [
            TileTrial(instruction, rows, depth),
            TileTrial(instruction, rows - 1, smaller_depth),
        ]
    return []


def _run(start: Any, lanes: int) -> Any:
    """The indices of ``lanes`` consecutive elements."""
    return tirx.Ramp(start, tirx.IntImm("int32", 1), lanes)


# -- operands ------------------------------------------------------------------------------

_EXTREME = 1 / 16
"""Share of extreme numbers in the cases that have some. With this share, most groups of several
operands also contain other numbers."""

_SMALLEST_NORMAL = float(np.finfo(np.float32).tiny)
"""The smallest normal number of float32 and bfloat16. Denormals of float16 are normal numbers in a
sum of float32."""


def random_operands(dtype: str, shape: Sequence[int], rng: np.random.Generator) -> Array:
    """Draw random operands for tests of an instruction, and extreme ones for half of the cases.

    Extreme integers are the ends of the dtype's range, 0 and 1. Extreme floating-point numbers are
    zeros, ones, the largest and the smallest numbers, denormals, infinities and NaN. Pass
    ``uint16`` for bfloat16, whose numbers are drawn as bits.
    """
    if dtype != BFLOAT16_BITS and np.dtype(dtype).kind in "iu":
        info = np.iinfo(dtype)
        numbers = rng.integers(info.min, info.max, shape, dtype, endpoint=True)
        ends = np.array([info.min, info.max, 0, 1], dtype)
    else:
        kind = np.dtype(np.float32 if dtype == BFLOAT16_BITS else dtype)
        limits = np.finfo(kind)
        spread = 2.0 ** rng.integers(-6, 7, shape)
        numbers = (rng.standard_normal(shape) * spread).astype(kind)
        # In bfloat16 the largest float32 would be infinite, and its smallest denormal zero.
        largest, denormal = limits.max / 2, limits.tiny / 4
        positive = [0.0, 1.0, largest, limits.tiny, denormal, np.inf, np.nan]
        ends = np.array([*positive, *(-number for number in positive)], kind)
        if dtype == BFLOAT16_BITS:
            numbers, ends = STORAGE[BFLOAT16].stored(numbers), STORAGE[BFLOAT16].stored(ends)
    extreme = rng.random(shape) < _EXTREME
    extreme[: len(extreme) // 2] = False
    return np.where(extreme, rng.choice(ends, shape), numbers).astype(dtype)


def flush_denormals(array: Array, dtype: str) -> Array:
    """Replace denormal operands by zeros, as instructions with ``flushes`` do."""
    if not is_floating(dtype):
        return array
    small = np.abs(to_float64(array, dtype)) < _SMALLEST_NORMAL
    return np.where(small, np.zeros((), array.dtype), array)


def to_float64(array: Array, dtype: str) -> Array:
    """Convert operands of a test to the float64 numbers that they represent."""
    return (STORAGE[BFLOAT16].real(array) if dtype == BFLOAT16_BITS else array).astype(np.float64)


def is_floating(dtype: str) -> bool:
    """Whether operands of a dtype are floating-point numbers."""
    return dtype == BFLOAT16_BITS or np.dtype(dtype).kind == "f"


def require_same(
    instruction: Instruction, got: Array, expected: Array, terms: Array, *, where: str
) -> None:
    """Require that computed sums equal the instruction's meaning, up to rounding.

    Integers must be equal. The allowed difference of floating-point sums is the number of terms,
    times the unit of rounding, times the sum of the terms' magnitudes. The bound is by Higham
    (Accuracy and Stability of Numerical Algorithms, section 4.2). Sums that may overflow in some
    order of the terms are not compared.

    Args:
        got: The sums that the machine computed, of any shape.
        expected: The sums that ``meaning`` returned, of the same shape as ``got``.
        terms: All added numbers as float64, with one more axis in front.
        where: Beginning of the message of a failure.

    Raises:
        AssertionError: Sums differ by more than rounding.
    """
    if got.dtype.kind != "f":
        wrong = int((got != expected).sum())
        assert wrong == 0, f"{where}: {wrong} of {got.size} sums differ from its meaning"
        return
    limits = np.finfo(got.dtype)
    magnitude = np.where(np.isfinite(terms), np.abs(terms), 0.0).sum(0)
    comparable = magnitude < float(limits.max) / 2
    same = (got == expected) | (np.isnan(got) & np.isnan(expected))
    finite = np.isfinite(expected)
    nonfinite = int((comparable & ~same & ~(finite & np.isfinite(got))).sum())
    assert nonfinite == 0, (
        f"{where}: {nonfinite} of {got.size} sums are infinite or NaN, or should be"
    )
    smallest = float(limits.tiny if instruction.flushes else limits.smallest_subnormal)
    bound = len(terms) * (float(limits.eps) * magnitude + smallest)
    with np.errstate(invalid="ignore"):
        error = np.abs(got.astype(np.float64) - expected.astype(np.float64))
    wrong = int((comparable & ~same & ~(error <= bound)).sum())
    assert wrong == 0, f"{where}: {wrong} of {got.size} sums are further off than rounding explains"


def check_instruction(record: InstructionRecord, target: str = "native") -> bool:
    """Check a plugin's instruction: its record against its class, and all of ``check_meaning``.

    Args:
        record: The record of a CPU's instruction.
        target: A CPU that has the instruction, in the form that users write; it may be the CPU of
            another machine.

    Returns:
        Whether the instruction also ran on this machine.

    Raises:
        AssertionError: A check fails; the message says which.
        PluginError: The instruction's class cannot be imported, or making its object fails.
    """
    instruction = instruction_of(record)
    where = f"instruction '{record.name}': the record's"
    for what in ("name", "summary", "architecture"):
        own, class_value = getattr(record, what), getattr(instruction, what)
        assert own == class_value, f"{where} {what} is {own!r}, its class's {class_value!r}"
    features, others = sorted(record.features), sorted(instruction.features)
    assert features == others, f"{where} features are {features}, its class's {others}"
    return check_meaning(instruction, target)


def check_meaning(instruction: Instruction, target: str = "native") -> bool:
    """Check the code of functions that use an instruction, and the results of these functions.

    The code must contain one of the instruction's mnemonics. If this machine's CPU has all
    features of the target, the functions must compute what ``meaning`` says, on random and on
    extreme operands.

    Args:
        target: A CPU that has the instruction, in the form that users write; it may be the CPU of
            another machine.

    Returns:
        Whether the instruction also ran on this machine.

    Raises:
        AssertionError: A check fails; the message says which.
        TargetError: The operating system refuses a permission that the instruction needs.
    """
    where = f"instruction '{instruction.name}'"
    resolved = TVMTargets(NoOptions()).resolve(target)
    built_for = tvm_target(resolved)
    trials = trials_of(instruction, target_features(built_for))
    same = instruction.architecture in {"", architecture_of(built_for)}
    assert trials and same, f"{where}: the target {target} lacks it"
    runs = is_this_cpu(resolved) or _runs_here(built_for)
    for trial in trials:
        about = f"{where}, {trial}"
        function = trial.function()
        code = lower_function(function, built_for, plain_loops=True)
        text = assembly(code)
        present = any(mnemonic in text for mnemonic in instruction.mnemonics)
        assert present, f"{about}: none of {', '.join(instruction.mnemonics)} in its code"
        if runs:
            require_permissions(function)
            _check_results(trial, code.jit(), about)
    return runs


def _runs_here(target: tvm.target.Target) -> bool:
    """Whether this machine's CPU has all features that code for a target may use."""
    same = architecture_of(target) == own_architecture()
    return same and not unreported_features(target) and used_features(target) <= host_features()


def assembly(code: tvm.runtime.Executable) -> str:
    """The assembly text of code that was compiled for a CPU."""
    return str(code.mod.inspect_source("s"))


def require_meaning(trial: Trial, operands: Operands, sums: NDArray[Any], *, where: str) -> None:
    """Require that a test's function computed what its instruction means.

    Raises:
        AssertionError: Sums differ by more than rounding.
    """
    expected, terms = trial.expected(operands)
    got = sums.reshape(expected.shape)
    require_same(trial.instruction, got, expected, terms, where=where)


def _check_results(trial: Trial, module: tvm.runtime.Module, where: str) -> None:
    operands = trial.operands()
    arguments = [tvm.runtime.tensor(array) for array in trial.arguments(operands)]
    module["main"](*arguments)
    require_meaning(trial, operands, arguments[-1].numpy(), where=where)
