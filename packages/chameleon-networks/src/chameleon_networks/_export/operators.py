"""Writes a tuned operator as a folder: a library, its loader, and the code that packs weights.

The folder is a network of one kernel, with the library, manifest and loader of networks. The
weights are constants. Activations are passed in the layouts that the kernel reads.
"""

from __future__ import annotations

import json
import shutil
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from chameleon_core.plugin_api import Arrays, ConfigError, Delivery, SpaceProvider, TargetError
from chameleon_tvm.api import (
    Program,
    TVMBuilder,
    architecture,
    foreign_kind,
    lower_function,
    own_triple,
    permissions_of,
    tvm_builder,
    tvm_target,
)
from numpy.typing import NDArray

from chameleon_networks._artifact.writer import build_facts, tensor_facts, write_artifact
from chameleon_networks._c_runtime.linking import SOURCES, compiler_command
from chameleon_networks._c_runtime.pack import ARRAYS, PACK, PACKING, replayed
from chameleon_networks._compile.sequence.buffer_specialization import (
    buffer_shape,
    specialize_buffers,
)
from chameleon_networks._compile.sequence.calls import Call, CallSequence, Tensor
from chameleon_networks._compile.sequence.library import (
    SequenceExecutable,
    archive_of,
    object_files,
    parallel_extents,
)

Array = NDArray[Any]


class NotRecordableError(Exception):
    """An operation that packs weights and cannot be recorded, as the message says."""


@attrs.define(kw_only=True)
class Recording:
    """A record of the NumPy operations that pack weights, which ``pack.py`` can repeat.

    Attributes:
        inputs: The arrays from which all other arrays are computed.
        constants: Arrays that the operations use besides ``inputs`` and earlier results.
        steps: The operations: a name, the arguments, and the keyword arguments as JSON values.
            ``{"array": n}`` is the n-th array among the inputs and results.
        fixed: Numbers of the inputs whose values decided which operations ran. The recording is
            valid only if these inputs have the same values.
        results: Number of arrays so far, inputs included.
    """

    inputs: list[Array] = attrs.field(factory=list)
    constants: list[Array] = attrs.field(factory=list)
    steps: list[tuple[str, list[Any], dict[str, Any]]] = attrs.field(factory=list)
    fixed: set[int] = attrs.field(factory=set)
    results: int = 0
    _sources: list[frozenset[int]] = attrs.field(factory=list)

    @classmethod
    def of(cls, inputs: Sequence[Array]) -> tuple[Recording, list[Array]]:
        """Start a recording, and wrap its inputs in arrays that record operations."""
        recording = cls(inputs=[np.ascontiguousarray(array) for array in inputs])
        wrapped: list[Array] = []
        for number, array in enumerate(recording.inputs):
            recording._sources.append(frozenset({number}))
            wrapped.append(recording._wrapped(array))
        return recording, wrapped

    def number_of(self, array: Array) -> int | None:
        """The number of an array in this recording, or None if the array is not in it."""
        known = isinstance(array, Recorded) and array.recording is self
        return array.number if known else None  # type: ignore[attr-defined]

    def decided(self, array: Recorded) -> None:
        """Mark the inputs of an array as ``fixed``, since code read its numbers."""
        self.fixed |= self._sources[_number(array)]

    def step(
        self, name: str, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
    ) -> Any:
        """Run an operation on plain arrays and record it, and its result if that is an array."""
        result = function(*_plain(tuple(args)), **_plain(kwargs))
        if not isinstance(result, np.ndarray):
            for array in _recorded((*args, *kwargs.values())):
                self.decided(array)
            return result
        written = [self._written(arg) for arg in args]
        self.steps.append((name, written, {key: self._written(arg) for key, arg in kwargs.items()}))
        sources = [self._sources[_number(array)] for array in _recorded((*args, *kwargs.values()))]
        self._sources.append(frozenset().union(*sources))
        return self._wrapped(result)

    def changed(self, array: Recorded, sources: Sequence[Any]) -> None:
        """Note that values of other arrays were written into an array."""
        more = [self._sources[_number(source)] for source in _recorded(tuple(sources))]
        self._sources[_number(array)] = self._sources[_number(array)].union(*more)

    def write(self, name: str, args: Sequence[Any]) -> None:
        """Record an operation that returns no array."""
        self.steps.append((name, [self._written(argument) for argument in args], {}))

    def _wrapped(self, array: Array) -> Recorded:
        recorded = array.view(Recorded)
        recorded.recording, recorded.number = self, self.results
        self.results += 1
        return recorded

    def _written(self, value: Any) -> Any:  # noqa: PLR0911 - one return for each kind
        if isinstance(value, Recorded):
            return {"array": _number(value)}
        if isinstance(value, np.ndarray):
            self.constants.append(value)
            return {"constant": len(self.constants) - 1}
        if isinstance(value, np.generic):
            return self._written(value.item())
        if value is None or isinstance(value, bool | int | float | str):
            return value
        if isinstance(value, tuple | list):
            kind = "tuple" if isinstance(value, tuple) else "list"
            return {kind: [self._written(item) for item in value]}
        if isinstance(value, slice):
            return {"slice": list(map(self._written, (value.start, value.stop, value.step)))}
        if value is Ellipsis:
            return {"ellipsis": True}
        if isinstance(value, type | np.dtype):
            return {"dtype": np.dtype(value).name}
        raise NotRecordableError(f"an argument of type {type(value).__name__}")


class Recorded(np.ndarray[Any, Any]):
    """A NumPy array that records its operations; ``Recording.of`` makes it."""

    recording: Recording | None
    number: int

    def __array_finalize__(self, source: Any) -> None:
        # Arrays that NumPy makes by itself, such as views, are not part of the recording.
        self.recording, self.number = None, -1

    def __array_ufunc__(self, ufunc: Any, method: Any, *inputs: Any, **options: Any) -> Any:
        in_place = any(output is not None for output in options.pop("out", None) or ())
        if in_place or method not in {"__call__", "reduce"}:
            raise NotRecordableError(f"{ufunc.__name__} in place")
        name = ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.reduce"
        return _step(f"numpy.{name}", getattr(ufunc, method), inputs, options)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        del types
        of_numpy = getattr(np, func.__name__, None) is func
        if not of_numpy:
            raise NotRecordableError(f"{func.__module__}.{func.__name__}")
        return _step(f"numpy.{func.__name__}", func, args, kwargs)

    def __getitem__(self, key: Any) -> Any:
        return _step("getitem", np.ndarray.__getitem__, (self, key), {})

    def __setitem__(self, key: Any, value: Any) -> None:
        if self.recording is None:
            raise NotRecordableError("an assignment to a part of an array")
        np.asarray(self)[_plain(key)] = _plain(value)
        self.recording.write("setitem", (self, key, value))
        self.recording.changed(self, (key, value))

    def __iter__(self) -> Iterator[Any]:
        return (self[index] for index in range(len(self)))

    def __float__(self) -> float:
        return float(_read(self))

    def __int__(self) -> int:
        return int(_read(self))

    def __bool__(self) -> bool:
        return bool(_read(self))

    def item(self, *args: Any) -> Any:
        """One element as a Python number, which makes its inputs ``fixed``."""
        return _read(self).item(*args)

    def tolist(self) -> Any:
        """All elements as Python numbers, which makes their inputs ``fixed``."""
        return _read(self).tolist()

    @property
    def T(self) -> Any:  # noqa: N802 - NumPy calls it so
        """The array with its axes reversed."""
        return self.transpose()


def _method(name: str) -> Callable[..., Any]:
    """A method of arrays that records its calls."""
    plain = getattr(np.ndarray, name)

    def recorded(self: Recorded, *args: Any, **kwargs: Any) -> Any:
        return _step(f"method.{name}", plain, (self, *args), kwargs)

    recorded.__name__ = name
    return recorded


_MOVES = ("reshape", "transpose", "swapaxes", "ravel", "flatten", "squeeze", "repeat", "take")
for _name in (*_MOVES, "astype", "copy"):
    setattr(Recorded, _name, _method(_name))


def _view(self: Recorded, *args: Any, **kwargs: Any) -> Any:
    if self.recording is None or args[:1] == (np.ndarray,):
        return np.ndarray.view(self, *args, **kwargs)
    return _step("method.view", np.ndarray.view, (self, *args), kwargs)


Recorded.view = _view  # type: ignore[method-assign,assignment]


def _step(name: str, function: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
    known = [array.recording for array in _recorded((*args, *kwargs.values())) if array.recording]
    if not known:
        # The array is not part of the recording, or its recording was lost. A check of pack.py
        # finds this.
        return function(*_plain(tuple(args)), **_plain(kwargs))
    return known[0].step(name, function, args, kwargs)


def _read(array: Recorded) -> Array:
    if array.recording is not None:
        array.recording.decided(array)
    return np.asarray(array)


def _number(array: Recorded) -> int:
    if array.recording is None:
        raise NotRecordableError("an array that NumPy made of another one by itself")
    return array.number


def _recorded(values: tuple[Any, ...]) -> list[Recorded]:
    """The recorded arrays among values, and in nested tuples and lists."""
    arrays: list[Recorded] = []
    for value in values:
        if isinstance(value, Recorded):
            arrays.append(value)
        elif isinstance(value, tuple | list):
            arrays += _recorded(tuple(value))
    return arrays


def _plain(value: Any) -> Any:
    """A value in which plain arrays replace recorded ones."""
    if isinstance(value, Recorded):
        return np.asarray(value)
    if isinstance(value, tuple | list):
        return type(value)(_plain(item) for item in value)
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value


MAIN = "main"


def deliver_operator(
    winner: Delivery.Winner, space: SpaceProvider, folder: Path, threads: int
) -> None:
    """Write an operator's folder, with random weights that users replace by their own."""
    _check_target(winner.task.target)
    compiler_command()
    builder = tvm_builder(space, winner)
    program = builder.program(winner.config)
    packing = _packing(builder, winner, program)
    sequence = _sequence(builder, program)
    resolved = tvm_target(winner.task.target)
    sequence, functions = specialize_buffers(sequence, {MAIN: program.function})
    [function] = functions.values()
    kernels = lower_function(function, resolved, plain_loops=program.plain_loops)
    archive = archive_of(object_files(kernels))
    executable = SequenceExecutable(
        kernels=lambda: archive,
        sequence=sequence,
        loops={MAIN: parallel_extents(function)},
        layout=0 if packing is None else packing.facts["layout"],
    )
    manifest = _manifest(winner, builder, program, threads)
    folder.mkdir(parents=True, exist_ok=True)
    if packing is not None:
        packing.write(folder)
    write_artifact(folder, executable, manifest)


def _check_target(target: str) -> None:
    """Check that this machine can link for a target, whose CPU features it may lack."""
    kind = foreign_kind(target)
    if kind:
        raise TargetError(
            f"operators are delivered as libraries for CPUs like this one "
            f"({architecture(own_triple())}) only, and the target is {kind}",
            hint="`--to tvmscript` writes the function for any target.",
        )


@attrs.frozen(kw_only=True, eq=False)
class Packing:
    """The NumPy operations that pack an operator's weights, recorded so that they can be repeated.

    Attributes:
        facts: The content of ``packing.json``, for ``pack.py``.
        constants: Arrays that the operations use besides the weights.
    """

    facts: dict[str, Any]
    constants: Arrays

    def write(self, folder: Path) -> None:
        """Write the operations that pack weights, and ``pack.py``, which repeats them."""
        (folder / PACKING).write_text(json.dumps(self.facts) + "\n", encoding="utf-8")
        np.savez_compressed(folder / ARRAYS, *self.constants)
        shutil.copyfile(SOURCES / PACK, folder / PACK)


def _sequence(builder: TVMBuilder, program: Program) -> CallSequence:
    """The operator as a network of one kernel call."""
    tensors: list[Tensor] = []
    inputs: list[Tensor] = []
    for number, parameter in enumerate(program.function.params):
        of: dict[str, Any] = {}
        if number in builder.operator.constants:
            of["constant"] = np.ascontiguousarray(program.inputs[number])
        elif number < len(program.inputs):
            of["input"] = len(inputs)
        tensors.append(Tensor.allocate(buffer_shape(parameter), str(parameter.dtype), **of))
        if "input" in of:
            inputs.append(tensors[-1])
    count = len(program.inputs)
    call = Call(kernel=MAIN, reads=tuple(tensors[:count]), writes=tuple(tensors[count:]))
    return CallSequence(inputs=tuple(inputs), calls=(call,), outputs=tuple(tensors[count:]))


def _manifest(
    winner: Delivery.Winner, builder: TVMBuilder, program: Program, threads: int
) -> dict[str, Any]:
    task, operator = winner.task, builder.operator
    described = [tensor_facts(parameter) for parameter in program.function.params]
    count = len(program.inputs)
    permissions = sorted(permissions_of(program.function))
    return {
        # Not operator.so: Python would take it for its own module of that name.
        **build_facts("kernel.so", task.target, threads),
        "operator": task.operator,
        "task": task.to_json(),
        "config": list(winner.config),
        "seconds": winner.seconds,
        "inputs": [described[index] for index in range(count) if index not in operator.constants],
        "outputs": described[count:],
        **({"permissions": permissions} if permissions else {}),
    }


def _packing(builder: TVMBuilder, winner: Delivery.Winner, program: Program) -> Packing | None:
    """Record how an operator's constants are packed; None if there are no constants."""
    positions = sorted(builder.operator.constants)
    if not positions:
        return None
    recording, recorded = Recording.of([builder.inputs[position] for position in positions])
    refused = f"how the weights of task {winner.task.name!r} are packed cannot be written down"
    hint = "Export its function with `--to tvmscript`, and pack weights with its template's `pack`."
    try:
        packed = _packed(builder, winner, recorded)
        outputs = [_reference(recording, array) for array in packed]
    except NotRecordableError as error:
        raise ConfigError(f"{refused}: it does {error}", hint=hint) from error
    fixed: list[int | None] = [None] * len(positions)
    for position in sorted(recording.fixed):
        fixed[position] = len(recording.constants)
        recording.constants.append(recording.inputs[position])
    names = [str(program.function.params[position].name) for position in positions]
    facts = {
        "inputs": [
            {"name": name, "shape": list(array.shape), "dtype": array.dtype.name}
            for name, array in zip(names, recording.inputs, strict=True)
        ],
        "fixed": fixed,
        "steps": recording.steps,
        "outputs": outputs,
        "constants": [f"arr_{number}" for number in range(len(recording.constants))],
    }
    # This number distinguishes weights that were packed for another kernel from the kernel's own.
    facts["layout"] = 1 + zlib.crc32(json.dumps(facts, sort_keys=True).encode())
    packing = Packing(facts=json.loads(json.dumps(facts)), constants=recording.constants)
    _check(packing, builder, winner, refused, hint)
    return packing


def _packed(builder: TVMBuilder, winner: Delivery.Winner, constants: Arrays) -> Arrays:
    """Pack constants with the builder of a kernel, which keeps its own constants."""
    positions = sorted(builder.operator.constants)
    logical = list(builder.inputs)
    inputs = list(logical)
    for position, constant in zip(positions, constants, strict=True):
        inputs[position] = constant
    try:
        builder.use(inputs)
        program = builder.program(winner.config)
    finally:
        builder.use(logical)
    return [program.inputs[position] for position in positions]


def _reference(recording: Recording, array: NDArray[Any]) -> dict[str, int]:
    """A reference to a packed array, for ``packing.json``."""
    number = recording.number_of(array)
    if number is None:
        raise NotRecordableError("something that leaves the recording")
    return {"array": number}


def _check(
    packing: Packing, builder: TVMBuilder, winner: Delivery.Winner, refused: str, hint: str
) -> None:
    """Check that the recorded operations pack other weights as the template does."""
    rng = np.random.default_rng(0)
    logical = [builder.inputs[position] for position in sorted(builder.operator.constants)]
    # Other weights are the same numbers in another order, which keep their dtype and range.
    others = [
        array if fixed is not None else rng.permutation(array.reshape(-1)).reshape(array.shape)
        for array, fixed in zip(logical, packing.facts["fixed"], strict=True)
    ]
    wanted = _packed(builder, winner, others)
    packed = replayed(packing.facts, others, packing.constants)
    for array, other in zip(packed, wanted, strict=True):
        if np.ascontiguousarray(array).tobytes() != np.ascontiguousarray(other).tobytes():
            raise ConfigError(f"{refused}: other weights are packed otherwise", hint=hint)
