"""The contract of devices that kernels are sent to: boards, GPUs, servers behind TVM RPC.

Building and running are apart here. A builder exports a configuration as a folder (an
artifact); any process that has a device loads it there. So builders never wait for devices, a
device never shares its time with a build, and a candidate whose device is lost runs on another.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from chameleon_core.stages.code import Kernel


class Device(ABC):
    """One device, as the worker process that has it to itself sees it.

    Made from a ``StageRef`` in that process, so nothing it does can take the search with it: a
    call that hangs is ended with its process.
    """

    @abstractmethod
    def connect(self, target: str) -> dict[str, Any]:
        """Reach the device, or reach it again after it was lost.

        Args:
            target: the canonical target that artifacts are built for.

        Returns:
            What it is, for the record (JSON values): ``name`` at least.

        Raises:
            DeviceLostError: it cannot be reached now; it is asked again later.
            TargetError: it can never run such artifacts (another architecture, another version
                of the compiler's runtime); said before the first measurement.
        """

    @abstractmethod
    def load(self, artifact: Path) -> Kernel:
        """A kernel on the device, made of what ``Builder.export`` wrote.

        Args:
            artifact: the folder; it may be removed when this returns.

        Raises:
            DeviceLostError: the device went away.
            Exception: anything else is a failure of the candidate.
        """

    @property
    def identity(self) -> str:
        """Which device it is now, where reaching it again may lead to another one; else empty."""
        return ""

    def probe(self) -> None:  # noqa: B027 - optional hook
        """Test quickly whether it computes and answers rightly.

        Raises:
            DeviceLostError: it does not.
        """

    def close(self) -> None:  # noqa: B027 - optional hook
        """Let go of the device; safe to call twice, and when it is lost."""
