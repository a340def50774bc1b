"""A worker's state and its answers to the runner's commands."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chameleon_core.errors import ChameleonError, InvalidConfigurationError
from chameleon_core.measurement import FailureKind

from chameleon_runners.worker.isolation import limit_memory, pin
from chameleon_runners.worker.protocol import Message

if TYPE_CHECKING:
    from chameleon_core.stages import Arrays, Builder, Kernel

_LONGEST_MESSAGE = 1500


def explain(error: BaseException) -> str:
    """An exception as a bounded text; the ends of a long one say most."""
    text = f"{type(error).__name__}: {error}".strip()
    if len(text) > _LONGEST_MESSAGE:
        half = _LONGEST_MESSAGE // 2
        text = f"{text[:half]} ... {text[-half:]}"
    return text


def out_of_memory(error: BaseException) -> bool:
    """Whether an exception means that an allocation failed, in Python or behind it."""
    return isinstance(error, MemoryError) or "bad_alloc" in str(error)


def failed(kind: FailureKind, message: str, **more: Any) -> Message:
    """A reply that says how a candidate failed."""
    return {"status": "failed", "kind": kind.value, "message": message, **more}


class Session:
    """One builder and the kernels made with it, each under a number the runner chose."""

    def __init__(self) -> None:
        self._builder: Builder | None = None
        self._kernels: dict[int, Kernel] = {}
        self._references: dict[str, Arrays] = {}
        self._commands: dict[str, Callable[[Message], Message]] = {
            "init": self._init,
            "open": self._open,
            "reference": self._reference,
            "build": self._build,
            "measure": self._measure,
            "repeat": self._repeat,
        }

    def answer(self, message: Message) -> Message:
        """Do what a command says and return the reply, whatever a candidate does in Python."""
        for slot in message.get("drop", ()):
            self._kernels.pop(slot, None)
        started = time.perf_counter()
        try:
            pin(message.get("cores", []))
            reply = self._commands[message["command"]](message)
        except BaseException as error:  # noqa: BLE001 - SystemExit of a candidate included
            reply = self._failure(message["command"], error)
        return {"elapsed": time.perf_counter() - started, **reply}

    def _failure(self, command: str, error: BaseException) -> Message:
        if isinstance(error, ChameleonError) and command in {"init", "open", "reference"}:
            return {
                "status": "error",
                "type": type(error).__name__,
                "message": str(error),
                "hint": error.hint,
            }
        if command in {"init", "open", "reference"}:
            return {"status": "error", "type": "", "message": explain(error), "hint": None}
        if isinstance(error, InvalidConfigurationError):
            return failed(FailureKind.INVALID, str(error))
        if out_of_memory(error):
            return failed(FailureKind.OUT_OF_MEMORY, explain(error))
        kind = FailureKind.BUILD_ERROR if command == "build" else FailureKind.RUN_ERROR
        return failed(kind, explain(error))

    def _init(self, message: Message) -> Message:
        sys.path[:] = message["sys_path"]
        limit_memory(message["memory_bytes"])
        if message["preload"] is not None:
            from chameleon_runners.worker.stages import preload  # noqa: PLC0415 - after the path

            preload(message["preload"])
        return {"status": "ok"}

    def _open(self, message: Message) -> Message:
        from chameleon_runners.worker.stages import make_builder  # noqa: PLC0415 - after init

        gc.disable()
        self._kernels.clear()
        self._references.clear()
        self._builder = None
        self._builder = make_builder(message)
        # What was imported stays: builds and clocks need not wait for its being searched.
        gc.freeze()
        gc.enable()
        return {"status": "ok"}

    @property
    def _ready_builder(self) -> Builder:
        if self._builder is None:
            raise RuntimeError("a command came before the builder was made")
        return self._builder

    def _reference(self, message: Message) -> Message:
        from chameleon_runners.worker.outputs import save_arrays  # noqa: PLC0415 - needs numpy

        try:
            arrays, tolerance = self._ready_builder.reference()
        except NotImplementedError as error:
            return {"status": "none", "message": str(error)}
        save_arrays(Path(message["path"]), arrays)
        return {"status": "ok", "tolerance": float(tolerance)}

    def _build(self, message: Message) -> Message:
        self._kernels[message["slot"]] = self._ready_builder.build(tuple(message["config"]))
        return {"status": "ok"}

    def _measure(self, message: Message) -> Message:
        """Check a kernel's outputs, then time it."""
        from chameleon_runners.timing import TimingPolicy, probe_runs, time_kernel  # noqa: PLC0415

        kernel = self._kernels[message["slot"]]
        outputs = kernel.outputs()
        error = None
        if message["reference"] is not None:
            wrong, error = self._check(outputs, message["reference"], message["tolerance"])
            if wrong is not None:
                return wrong
        # The first run may have started a pool of threads, which moves the main thread.
        pin(message["cores"])
        policy = TimingPolicy(**message["policy"])
        if message["probe"]:
            number = probe_runs(kernel, policy)
            return {"status": "ok", "error": error, "seconds": [], "number": number}
        timing = time_kernel(kernel, policy, message["best"])
        return {
            "status": "ok",
            "error": error,
            "seconds": list(timing.seconds),
            "number": timing.number,
        }

    def _check(
        self, outputs: Arrays, path: str, tolerance: float
    ) -> tuple[Message | None, float | None]:
        from chameleon_runners.worker.outputs import compare, load_arrays  # noqa: PLC0415

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
        return failed(FailureKind.WRONG_OUTPUT, text, error=error), error

    def _repeat(self, message: Message) -> Message:
        """The repeats of one turn of a kernel that was checked before."""
        kernel = self._kernels[message["slot"]]
        # Whoever ran in between has taken the caches and sent the threads to sleep: that is what
        # the run that ``Kernel.repeats`` does before the clock starts is for.
        seconds = kernel.repeats(
            message["number"], message["count"], cold_bytes=message["cold_bytes"]
        )
        return {"status": "ok", "seconds": list(seconds)}
