"""The state of a worker, and its answers to the runner's commands."""

from __future__ import annotations

import contextlib
import gc
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from chameleon_core.plugin_api import (
    Arrays,
    Builder,
    ChameleonError,
    Device,
    DeviceLostError,
    FailureKind,
    InvalidConfigurationError,
    Kernel,
    TargetError,
)
from chameleon_system.api import open_atomic
from numpy.typing import NDArray

from chameleon_runners._core_meter import count_involuntary_switches
from chameleon_runners._timing import Repeats, TimingPolicy, no_switches, probe_runs, time_kernel
from chameleon_runners._worker.protocol import Message
from chameleon_runners._worker.stages import BuilderCache, make_device, preload


@attrs.frozen(kw_only=True)
class Difference:
    """The difference between a candidate's outputs and the reference outputs.

    Attributes:
        error: the largest |difference| divided by the largest |expected|; infinity if the outputs
            cannot be compared.
        problem: why the outputs cannot be compared; empty if they can.
    """

    error: float
    problem: str = ""


def save_arrays(path: Path, arrays: Arrays) -> None:
    """Write arrays to a file atomically."""
    with open_atomic(path) as file:
        np.savez(file, *arrays)


def load_arrays(path: Path) -> Arrays:
    """Read the arrays that ``save_arrays`` wrote."""
    with np.load(path, allow_pickle=False) as stored:
        return [stored[f"arr_{index}"] for index in range(len(stored.files))]


def compare(actual: Arrays, expected: Arrays) -> Difference:
    """Compare a candidate's outputs with the expected outputs."""
    if len(actual) != len(expected):
        return _incomparable(f"{len(actual)} outputs where {len(expected)} are expected")
    worst = 0.0
    for index, (got, want) in enumerate(zip(actual, expected, strict=True)):
        difference = _compare_one(np.asarray(got), want)
        if difference.problem:
            return _incomparable(f"output {index} {difference.problem}")
        worst = max(worst, difference.error)
    return Difference(error=worst)


def _compare_one(got: NDArray[np.generic], want: NDArray[np.generic]) -> Difference:
    if got.shape != want.shape:
        return _incomparable(f"has shape {got.shape} where {want.shape} is expected")
    # A reference may be computed in higher precision than the operator's own.
    if got.dtype.kind != want.dtype.kind or got.dtype.itemsize > want.dtype.itemsize:
        return _incomparable(f"is {got.dtype} where {want.dtype} is expected")
    if not want.size:
        return Difference(error=0.0)
    got64, want64 = got.astype(np.float64), want.astype(np.float64)
    finite = np.isfinite(want64)
    if not np.array_equal(got64[~finite], want64[~finite], equal_nan=True):
        return _incomparable("differs where the reference is NaN or infinite")
    if not np.isfinite(got64[finite]).all():
        return _incomparable("holds NaN or infinity where the reference does not")
    largest = float(np.abs(want64[finite]).max(initial=0.0))
    gap = float(np.abs(got64[finite] - want64[finite]).max(initial=0.0))
    return Difference(error=gap / largest if largest > 0.0 else gap)


def _incomparable(problem: str) -> Difference:
    return Difference(error=float("inf"), problem=problem)


@contextlib.contextmanager
def _as_device_lost(words: str) -> Iterator[None]:
    """A context that turns exceptions other than Chameleon's own into ``DeviceLostError``."""
    try:
        yield
    except ChameleonError:
        raise
    except Exception as error:
        raise DeviceLostError(f"{words}: {type(error).__name__}: {error}") from error


def limit_memory(limit: int) -> None:
    """Make allocations beyond ``limit`` bytes fail in this process, and switch core files off."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    if most != resource.RLIM_INFINITY:
        limit = min(limit, most)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


def bind_cores(cores: list[int]) -> None:
    """Bind the main thread to some cores; other threads are not bound."""
    if cores and hasattr(os, "sched_setaffinity"):
        with contextlib.suppress(OSError):
            os.sched_setaffinity(os.getpid(), cores)


_LONGEST_MESSAGE = 1500

_STAGE_COMMANDS = frozenset({"init", "open", "reference", "connect", "probe", "disconnect"})
"""Commands that run no candidate, so that a failure is the stage's or the device's fault."""


def explain_error(error: BaseException) -> str:
    """The type and message of an exception, shortened for a reply."""
    text = f"{type(error).__name__}: {error}".strip()
    if len(text) > _LONGEST_MESSAGE:
        half = _LONGEST_MESSAGE // 2
        text = f"{text[:half]} ... {text[-half:]}"
    return text


def out_of_memory(error: BaseException) -> bool:
    """Whether an exception says that an allocation failed."""
    words = str(error).lower().replace("_", " ")
    return isinstance(error, MemoryError) or "bad alloc" in words or "out of memory" in words


def failure_reply(kind: FailureKind, message: str, **more: Any) -> Message:
    """A reply about a failed candidate."""
    return {"status": "failed", "kind": kind.value, "message": message, **more}


def _kind_of(error: BaseException, *, building: bool) -> FailureKind:
    """The kind of failure that an exception of a candidate means."""
    if isinstance(error, InvalidConfigurationError):
        return FailureKind.INVALID
    if out_of_memory(error):
        return FailureKind.OUT_OF_MEMORY
    if building:
        return FailureKind.BUILD_ERROR
    # A device's server may end a long run before its runner does.
    hung = isinstance(error, TimeoutError)
    return FailureKind.RUN_TIMEOUT if hung else FailureKind.RUN_ERROR


class CommandHandler:
    """Executes the runner's commands in a worker process."""

    def __init__(self) -> None:
        self._builder: Builder | None = None
        self._builder_cache = BuilderCache()
        self._device: Device | None = None
        self._kernels: dict[int, Kernel] = {}
        self._references: dict[str, Arrays] = {}
        building = (self._init, self._open, self._reference, self._build, self._export)
        timing = (self._load, self._run, self._measure, self._repeat)
        answers = (*building, *timing, self._connect, self._probe, self._disconnect)
        self._commands = {answer.__name__.removeprefix("_"): answer for answer in answers}

    def answer(self, message: Message) -> Message:
        """Execute a command of the runner and return the reply."""
        for slot in message.get("drop", ()):
            self._kernels.pop(slot, None)
        started = time.perf_counter()
        try:
            bind_cores(message.get("cores", []))
            reply = self._commands[message["command"]](message)
        except BaseException as error:  # noqa: BLE001 - SystemExit of a candidate included
            reply = self._failure(message["command"], error)
        elapsed = time.perf_counter() - started
        identity = "" if self._device is None else self._device.identity
        return {"elapsed": elapsed, "device": identity, **reply}

    def _failure(self, command: str, error: BaseException) -> Message:
        if isinstance(error, DeviceLostError) and self._device is not None:
            return {"status": "lost", "message": str(error)}
        # An unsupported target fails every candidate.
        unsupported = command == "build" and isinstance(error, TargetError)
        if isinstance(error, ChameleonError) and (command in _STAGE_COMMANDS or unsupported):
            return {
                "status": "error",
                "type": type(error).__name__,
                "message": str(error),
                "hint": error.hint,
            }
        if command in _STAGE_COMMANDS:
            return {"status": "error", "type": "", "message": explain_error(error), "hint": None}
        kind = _kind_of(error, building=command in {"build", "export"})
        words = str(error) if kind is FailureKind.INVALID else explain_error(error)
        return failure_reply(kind, words)

    def _init(self, message: Message) -> Message:
        sys.path[:] = message["sys_path"]
        limit_memory(message["memory_bytes"])
        if message["preload"] is not None:
            preload(message["preload"])
        return {"status": "ok"}

    def _open(self, message: Message) -> Message:
        gc.disable()
        self._kernels.clear()
        self._references.clear()
        self._builder = None
        self._builder = self._builder_cache.get(message)
        # Imported objects stay, so garbage collections during builds and timings skip them.
        gc.freeze()
        gc.enable()
        return {"status": "ok"}

    @property
    def _ready_builder(self) -> Builder:
        if self._builder is None:
            raise RuntimeError("a command came before the builder was made")
        return self._builder

    @property
    def _ready_device(self) -> Device:
        if self._device is None:
            raise RuntimeError("a command came before the device was connected")
        return self._device

    def _connect(self, message: Message) -> Message:
        """Make the device if necessary, and connect to it."""
        if self._device is None:
            self._device = make_device(message["factory"], message["options"])
        with _as_device_lost("it cannot be reached"):
            return {"status": "ok", "description": self._device.connect(message["target"])}

    def _probe(self, _message: Message) -> Message:
        """Run the device's self-test."""
        with _as_device_lost("its self-test fails"):
            self._ready_device.probe()
        return {"status": "ok"}

    def _disconnect(self, _message: Message) -> Message:
        if self._device is not None:
            self._device.close()
        return {"status": "ok"}

    def _reference(self, message: Message) -> Message:
        try:
            arrays, tolerance = self._ready_builder.reference()
        except NotImplementedError as error:
            return {"status": "none", "message": str(error)}
        save_arrays(Path(message["path"]), arrays)
        return {"status": "ok", "tolerance": float(tolerance)}

    def _build(self, message: Message) -> Message:
        self._kernels[message["slot"]] = self._ready_builder.build(tuple(message["config"]))
        return {"status": "ok"}

    def _export(self, message: Message) -> Message:
        """Build one configuration for devices, into a new folder."""
        builder = self._ready_builder
        if type(builder).export is Builder.export:
            name = type(builder).__name__
            return {"status": "none", "message": f"{name} cannot build for other devices"}
        artifact = Path(message["artifact"])
        artifact.mkdir()
        builder.export(tuple(message["config"]), artifact)
        return {"status": "ok"}

    def _load(self, message: Message) -> Message:
        self._kernels[message["slot"]] = self._ready_device.load(Path(message["artifact"]))
        return {"status": "ok"}

    def _run(self, message: Message) -> Message:
        """Load an exported kernel, check and time it, and free it."""
        return self._clock(self._ready_device.load(Path(message["artifact"])), message)

    def _measure(self, message: Message) -> Message:
        return self._clock(self._kernels[message["slot"]], message)

    def _clock(self, kernel: Kernel, message: Message) -> Message:
        """Check a kernel's outputs, then time it."""
        outputs = kernel.outputs()
        error = None
        if message["reference"] is not None:
            wrong, error = self._check(outputs, message["reference"], message["tolerance"])
            if wrong is not None:
                return wrong
        # The first run may have started a pool of threads, which moves the main thread.
        bind_cores(message["cores"])
        policy = TimingPolicy(**message["policy"])
        if message["probe"]:
            number = probe_runs(kernel, policy)
            return {"status": "ok", "error": error, "seconds": [], "number": number}
        clocks = _Clocks(kernel, message)
        timing = time_kernel(kernel, policy, message["best"], _switches(message))
        return {
            "status": "ok",
            "error": error,
            "seconds": list(timing.seconds),
            "number": timing.number,
            "clock": clocks.reply(),
        }

    def _check(
        self, outputs: Arrays, path: str, tolerance: float
    ) -> tuple[Message | None, float | None]:
        if path not in self._references:
            self._references[path] = load_arrays(Path(path))
        difference = compare(outputs, self._references[path])
        if difference.error <= tolerance:
            return None, difference.error
        text = difference.problem or (
            f"outputs differ from the reference by {difference.error:.3g} of its largest "
            f"magnitude, more than the accepted {tolerance:.3g}"
        )
        error = None if difference.problem else difference.error
        return failure_reply(FailureKind.WRONG_OUTPUT, text, error=error), error

    def _repeat(self, message: Message) -> Message:
        """Time one turn of a kernel that was checked before."""
        kernel = self._kernels[message["slot"]]
        # ``Kernel.repeats`` first runs the kernel once, which warms up caches and threads.
        repeats = Repeats(
            kernel, message["number"], message["cold_bytes"], switches=_switches(message)
        )
        each = 1 if message["singly"] else message["count"]
        clocks = _Clocks(kernel, message)
        while len(repeats) < message["count"]:
            repeats.take(each)
        return {
            "status": "ok",
            "seconds": repeats.undisturbed,
            "disturbed": repeats.disturbed,
            "clock": clocks.reply(),
        }


class _Clocks:
    """Reads a kernel's clock before and after a timing, as often as the command asks for."""

    def __init__(self, kernel: Kernel, message: Message) -> None:
        self._kernel = kernel
        self._readings: list[tuple[str, float]] = []
        for number in range(message.get("clock", 0)):
            if number:
                _keep_busy(kernel, message["clock_pause"])
            reading = kernel.clock()
            if reading is None:
                break
            self._readings.append(reading)

    def reply(self) -> tuple[str, list[float]] | None:
        """The clock's instructions, and the rates before and now; None without a clock."""
        last = self._kernel.clock() if self._readings else None
        if last is None:
            return None
        return last[0], [rate for _, rate in (*self._readings, last)]


def _keep_busy(kernel: Kernel, seconds: float) -> None:
    """Run a kernel for some seconds, since cores that have slept are slower for a while."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        kernel.time(1)


def _switches(message: Message) -> Callable[[], int]:
    """A function that counts thread switches; always 0 for kernels on a device."""
    return count_involuntary_switches if message["cores"] else no_switches
