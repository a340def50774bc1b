"""Devices for tests that crash, compute wrongly, disconnect, or lack memory or disk space."""

import errno
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from chameleon_core._errors import DeviceLostError, TargetError
from chameleon_core.plugin_api import Arrays, Device, Kernel, StageRef
from chameleon_runners._fleet.device_state import DeviceRef
from faults import ARTIFACT, hang, load


class DeviceFault(StrEnum):
    """A fault of a device while it runs a candidate."""

    CRASHES = "crashes"
    LIES = "lies"
    DISCONNECTS = "disconnects"
    CORRUPTS = "corrupts"
    FILLS_UP = "fills_up"
    RUNS_OUT_OF_MEMORY = "runs_out_of_memory"


@attrs.frozen(kw_only=True)
class FaultDeviceOptions:
    """Options of a simulated device that fails on purpose, for tests of Chameleon.

    Attributes:
        state: A folder that keeps the number of candidates that the device has run. So a new worker
            of the device continues the count.
        seed: The seed that decides, together with the count, which fault the next candidate meets.
        rates: The share of candidates for each fault, by the fault's name; at most 1 in total.
        down: The number of attempts to connect that fail after the device has disconnected.
        deaf: The number of attempts to connect that hang, counted from the first.
        gone_after: The number of candidates after which the device cannot be connected any more;
            None for never.
        target: The only target that the device can run; empty for any.
        seconds: The seconds that loading a candidate takes.
        pace: The factor on the times of the device's kernels.
    """

    state: str
    seed: int = 0
    rates: dict[str, float] = attrs.field(factory=dict)
    down: int = 1
    deaf: int = 0
    gone_after: int | None = None
    target: str = ""
    seconds: float = 0.0
    pace: float = 1.0

    @rates.validator
    def _possible(self, _attribute: object, rates: dict[str, float]) -> None:
        for name in rates:
            DeviceFault(name)
        if sum(rates.values()) > 1.0 + 1e-9 or min(rates.values(), default=0.0) < 0.0:
            raise ValueError("the rates must be shares of a whole")


class FaultDevice(Device):
    """A device for tests that runs kernels of ``FaultBuilder``, and fails at random.

    Args:
        options: The faults and their rates.
    """

    def __init__(self, options: FaultDeviceOptions) -> None:
        self._options = options
        self._state = Path(options.state)
        self._reached = False

    def connect(self, target: str) -> dict[str, Any]:
        options = self._options
        if options.target and options.target != target:
            raise TargetError(
                f"this device runs {options.target!r}, not {target!r}",
                hint=f"set the pipeline's target to {options.target!r}",
            )
        with (self._state / "heard").open("ab") as log:
            log.write(b".")
        if (self._state / "heard").stat().st_size <= options.deaf:
            hang()
        if self._gone:
            raise DeviceLostError("nobody answers")
        down = self._state / "down"
        if down.exists():
            left = int(down.read_text())
            if left > 0:
                down.write_text(str(left - 1))
                raise DeviceLostError("it is restarting")
            down.unlink()
        self._reached = True
        (self._state / "held").touch()
        return {"name": f"fault device {options.seed}", "target": target}

    @property
    def _gone(self) -> bool:
        return self._options.gone_after is not None and self.count() >= self._options.gone_after

    def count(self) -> int:
        """The number of candidates that the device got so far."""
        log = self._state / "given"
        return log.stat().st_size if log.exists() else 0

    def probe(self) -> None:
        if not self._reached or self._gone:
            raise DeviceLostError("it does not answer")

    def close(self) -> None:
        self._reached = False
        (self._state / "held").unlink(missing_ok=True)

    def load(self, artifact: Path) -> Kernel:
        number = self.count()
        with (self._state / "given").open("ab") as log:
            log.write(b".")
        time.sleep(self._options.seconds)
        fault = self._fault(number)
        deed = _LOADING.get(fault) if fault is not None else None
        if deed is not None:
            deed(self)
        if fault is DeviceFault.CORRUPTS:
            return _load_cut_off(artifact)
        return _DeviceKernel(load(artifact), fault, self._options.pace)

    def _fault(self, number: int) -> DeviceFault | None:
        draw = float(np.random.default_rng([self._options.seed, number]).random())
        for name, rate in self._options.rates.items():
            if draw < rate:
                return DeviceFault(name)
            draw -= rate
        return None

    def disconnect(self) -> None:
        """Disconnect, so that the next attempts to connect fail."""
        (self._state / "down").write_text(str(self._options.down))
        self._reached = False
        raise DeviceLostError("the connection was reset")


class _DeviceKernel(Kernel):
    """A kernel on a device that may return wrong outputs or be slow."""

    def __init__(self, kernel: Kernel, fault: DeviceFault | None, pace: float) -> None:
        self._kernel = kernel
        self._fault = fault
        self._pace = pace

    def outputs(self) -> Arrays:
        outputs = self._kernel.outputs()
        if self._fault is DeviceFault.LIES:
            outputs[0] = outputs[0] + 1.0
        return outputs

    def time(self, number: int, *, cold_bytes: int = 0) -> float:
        return self._pace * self._kernel.time(number, cold_bytes=cold_bytes)


def _raise(error: Exception) -> None:
    raise error


_LOADING: dict[DeviceFault, Callable[[FaultDevice], None]] = {
    DeviceFault.CRASHES: lambda _: os.abort(),
    DeviceFault.DISCONNECTS: FaultDevice.disconnect,
    DeviceFault.FILLS_UP: lambda _: _raise(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))),
    DeviceFault.RUNS_OUT_OF_MEMORY: lambda _: _raise(RuntimeError("cudaMalloc: out of memory")),
}


def _load_cut_off(artifact: Path) -> Kernel:
    """Load a copy of an exported kernel whose file lacks its last byte."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy"
        shutil.copytree(artifact, copy)
        program = copy / ARTIFACT
        program.write_bytes(program.read_bytes()[:-1])
        return load(copy)


def fault_device_ref(name: str, folder: Path, **options: Any) -> DeviceRef:
    """Make the reference of a device that fails, for a fleet in a test.

    Args:
        name: The device's name.
        folder: The folder in which a folder of this name keeps the device's state.
        options: Options of ``FaultDeviceOptions``.
    """
    state = folder / name
    state.mkdir(parents=True, exist_ok=True)
    chosen = FaultDeviceOptions(state=str(state), **options)
    factory = f"{FaultDevice.__module__}:{FaultDevice.__name__}"
    return DeviceRef(name=name, device=StageRef(factory=factory, options=attrs.asdict(chosen)))
