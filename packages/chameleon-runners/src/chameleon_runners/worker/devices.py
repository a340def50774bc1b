"""The device that a worker has to itself: made, reached, tested, and loaded with artifacts."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from chameleon_core.errors import ChameleonError, DeviceLostError

from chameleon_runners.worker.protocol import Message

if TYPE_CHECKING:
    from chameleon_core.stages import Device, Kernel


class DeviceHolder:
    """Holds at most one device; what it raises beyond the contract is a device that is lost."""

    def __init__(self) -> None:
        self._device: Device | None = None

    @property
    def held(self) -> bool:
        """Whether there is a device."""
        return self._device is not None

    @property
    def identity(self) -> str:
        """Which device it is, where that may change; empty where it cannot."""
        return "" if self._device is None else self._device.identity

    def connect(self, message: Message) -> Message:
        """Make the device unless it was made before, and reach it.

        Raises:
            DeviceLostError: it cannot be reached now.
            ChameleonError: it can never be used.
        """
        from chameleon_runners.worker.stages import make_device  # noqa: PLC0415 - after init

        if self._device is None:
            self._device = make_device(message["factory"], message["options"])
        with _losing("it cannot be reached"):
            return {"status": "ok", "description": self._device.connect(message["target"])}

    def probe(self) -> Message:
        """Have the device test itself.

        Raises:
            DeviceLostError: it does not answer rightly.
        """
        with _losing("its self-test fails"):
            self._connected.probe()
        return {"status": "ok"}

    def load(self, artifact: str) -> Kernel:
        """A kernel on the device."""
        return self._connected.load(Path(artifact))

    def disconnect(self) -> Message:
        """Let go of the device."""
        if self._device is not None:
            self._device.close()
        return {"status": "ok"}

    @property
    def _connected(self) -> Device:
        if self._device is None:
            raise RuntimeError("a command came before the device was connected")
        return self._device


class _losing(contextlib.AbstractContextManager[None]):  # noqa: N801 - reads as a statement
    """Turns exceptions that no contract names into ``DeviceLostError``."""

    def __init__(self, words: str) -> None:
        self._words = words

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, ChameleonError):
            name = type(error).__name__
            raise DeviceLostError(f"{self._words}: {name}: {error}") from error
