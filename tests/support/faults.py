"""A design space of kernels that crash, hang, print, fork, use much memory or are wrong."""

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from chameleon_core._errors import DeviceLostError, InvalidConfigurationError
from chameleon_core._task import Task
from chameleon_core.plugin_api import Arrays, Builder, Choice, DesignSpace, Kernel, SpaceProvider

_SHAPE = (4, 5)
_STANDARD = 2
"""The highest file descriptor of the standard streams."""

ARTIFACT = "program.json"
"""The file of an exported kernel. It is complete if it ends with a newline."""

HANGING = "this hangs on purpose"
"""The line that a kernel, a build or a device prints when it hangs."""


class Fault(StrEnum):
    """The misbehaviour of a kernel or of its build."""

    NONE = "none"
    INVALID = "invalid"
    BUILD_RAISES = "build_raises"
    BUILD_HANGS = "build_hangs"
    BUILD_SEGFAULTS = "build_segfaults"
    SEGFAULTS = "segfaults"
    ABORTS = "aborts"
    HANGS = "hangs"
    HANGS_BLOCKING_SIGNALS = "hangs_blocking_signals"
    EATS_MEMORY = "eats_memory"
    PRINTS = "prints"
    PRINTS_WITHOUT_END = "prints_without_end"
    SCRIBBLES = "scribbles"
    FORKS = "forks"
    FORKS_AND_HANGS = "forks_and_hangs"
    RETURNS_TWICE = "returns_twice"
    EXITS = "exits"
    EXITS_HARD = "exits_hard"
    WRONG = "wrong"
    WRONG_SHAPE = "wrong_shape"
    WRONG_DTYPE = "wrong_dtype"
    NAN = "nan"
    RAISES = "raises"
    SLOW = "slow"
    DISCONNECTS = "disconnects"
    EXHAUSTS_DEVICE = "exhausts_device"


FAULTS = tuple(Fault)
"""All faults, in the order of the knob's indices."""


@attrs.frozen(kw_only=True)
class FaultOptions:
    """Options of the design space ``FaultSpace``, whose kernels fail on purpose.

    Attributes:
        variants: The number of configurations per fault.
        seconds: The seconds that one run of a kernel takes.
        opening: The fault of making the builder: ``raises`` or ``exits``; empty for none.
        reference: The fault of computing the reference: ``missing`` or ``exits``; empty for none.
        kernel_mib: The memory that a kernel holds from its build on, in MiB.
        run_mib: The additional memory that a kernel holds from its first run on, in MiB.
    """

    variants: int = 4096
    seconds: float = 0.0002
    opening: str = ""
    reference: str = ""
    kernel_mib: int = 0
    run_mib: int = 0


def hang() -> None:
    """Say so, and hang."""
    os.write(1, f"{HANGING}\n".encode())
    while True:
        time.sleep(0.01)


def _hang_blocking_signals() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    hang()


def _eat_memory() -> None:
    blocks = []
    while True:
        blocks.append(np.zeros(1 << 23))


def _print_much() -> None:
    print("printed by a kernel")  # noqa: T201 - it is what this kernel does
    print("and to the error stream", file=sys.stderr)  # noqa: T201
    os.write(1, b"\x00\xff written to the descriptor\n")


def _print_without_end() -> None:
    while True:
        os.write(1, b"x" * 4096)


def _scribble() -> None:
    for descriptor in sorted(int(name) for name in os.listdir("/proc/self/fd")):  # noqa: PTH208
        if descriptor <= _STANDARD:
            continue
        try:
            os.set_blocking(descriptor, False)
            os.write(descriptor, b"garbage" * 100)
        except OSError:
            continue
    hang()


def _fork() -> None:
    """Start a grandchild process in a session of its own, which keeps running."""
    program = (
        "import subprocess, sys;"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'],"
        " start_new_session=True)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def _fork_and_hang() -> None:
    _fork()
    hang()


def _raise(error: Exception) -> None:
    raise error


_DEEDS: dict[Fault, Callable[[], Any]] = {
    Fault.SEGFAULTS: lambda: ctypes.string_at(0),
    Fault.ABORTS: os.abort,
    Fault.HANGS: hang,
    Fault.HANGS_BLOCKING_SIGNALS: _hang_blocking_signals,
    Fault.EATS_MEMORY: _eat_memory,
    Fault.PRINTS: _print_much,
    Fault.PRINTS_WITHOUT_END: _print_without_end,
    Fault.SCRIBBLES: _scribble,
    Fault.FORKS: _fork,
    Fault.FORKS_AND_HANGS: _fork_and_hang,
    Fault.RETURNS_TWICE: os.fork,
    Fault.EXITS: lambda: sys.exit(3),
    Fault.EXITS_HARD: lambda: os._exit(7),
    Fault.RAISES: lambda: _raise(RuntimeError("the kernel raised")),
    Fault.DISCONNECTS: lambda: _raise(DeviceLostError("the kernel took the connection with it")),
    Fault.EXHAUSTS_DEVICE: lambda: _raise(RuntimeError("CUDA_ERROR_OUT_OF_MEMORY: no memory")),
}


class FaultKernel(Kernel):
    """A kernel that computes correct outputs, or misbehaves as its fault says."""

    def __init__(
        self, fault: Fault, seconds: float, *, kernel_mib: int = 0, run_mib: int = 0
    ) -> None:
        self._fault = fault
        self._seconds = seconds * (50.0 if fault is Fault.SLOW else 1.0)
        self._holds = [np.zeros(kernel_mib << 20, np.ubyte)]
        self._run_mib = run_mib

    def outputs(self) -> Arrays:
        if len(self._holds) == 1:
            self._holds.append(np.zeros(self._run_mib << 20, np.ubyte))
        _DEEDS.get(self._fault, lambda: None)()
        right = expected()
        if self._fault is Fault.WRONG:
            right[1, 2] += 1.0
        elif self._fault is Fault.NAN:
            right[0, 0] = np.nan
        elif self._fault is Fault.WRONG_SHAPE:
            return [right.T]
        elif self._fault is Fault.WRONG_DTYPE:
            return [right.astype(np.int32)]
        return [right]

    def time(self, number: int, *, cold_bytes: int = 0) -> float:
        del cold_bytes
        for _ in range(number):
            time.sleep(self._seconds)
        # A busy machine wakes it later than that, which is no property of the kernel.
        return self._seconds


class FaultBuilder(Builder):
    """Builds fault kernels."""

    def __init__(self, options: FaultOptions) -> None:
        self._options = options

    def build(self, config: Sequence[int]) -> Kernel:
        own, fault = self._options, self._compile(config)
        return FaultKernel(fault, own.seconds, kernel_mib=own.kernel_mib, run_mib=own.run_mib)

    def export(self, config: Sequence[int], artifact: Path) -> None:
        fault = self._compile(config)
        program = {"fault": fault.value, "seconds": self._options.seconds}
        (artifact / ARTIFACT).write_text(json.dumps(program) + "\n")

    @staticmethod
    def _compile(config: Sequence[int]) -> Fault:
        fault = FAULTS[config[0]]
        if fault is Fault.INVALID:
            raise InvalidConfigurationError("this configuration names no program")
        if fault is Fault.BUILD_RAISES:
            raise RuntimeError("the build raised")
        if fault is Fault.BUILD_HANGS:
            hang()
        if fault is Fault.BUILD_SEGFAULTS:
            ctypes.string_at(0)
        return fault

    def reference(self) -> tuple[Arrays, float]:
        if self._options.reference == "missing":
            return super().reference()
        if self._options.reference == "exits":
            os._exit(5)
        return [expected()], 1e-6


class FaultSpace(SpaceProvider):
    """A design space for tests of runners, whose configurations fail in different ways.

    It has two knobs: the fault, and a number that makes configurations distinct.
    """

    def __init__(self, options: FaultOptions) -> None:
        self._options = options

    def design_space(self, task: Task) -> DesignSpace:
        del task
        numbers = tuple(range(self._options.variants))
        faults = tuple(fault.value for fault in FAULTS)
        knobs = [Choice(name="fault", options=faults), Choice(name="number", options=numbers)]
        return DesignSpace(knobs)

    def builder(self, task: Task, *, threads: int) -> Builder:
        del task, threads
        if self._options.opening == "raises":
            raise RuntimeError("the builder cannot be made")
        if self._options.opening == "exits":
            os._exit(4)
        return FaultBuilder(self._options)


def load(artifact: Path) -> FaultKernel:
    """Load the kernel that ``FaultBuilder.export`` wrote.

    Raises:
        ValueError: The file is not complete.
    """
    text = (artifact / ARTIFACT).read_text()
    if not text.endswith("\n"):
        raise ValueError("the program is cut off")
    program = json.loads(text)
    return FaultKernel(Fault(program["fault"]), program["seconds"])


def expected() -> np.ndarray:
    """The outputs of a correct kernel."""
    return np.arange(1.0, 21.0, dtype=np.float32).reshape(_SHAPE)


def config(fault: Fault, number: int = 0) -> tuple[int, int]:
    """The configuration of a fault."""
    return FAULTS.index(fault), number
