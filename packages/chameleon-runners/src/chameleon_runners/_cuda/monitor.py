"""Reads a GPU's name, clocks, temperature and throttling from NVIDIA's driver."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import Any

import attrs

_VISIBLE = "CUDA_VISIBLE_DEVICES"
_PROGRAM = "nvidia-smi"
_SECONDS = 5.0
_FIELDS = {
    "name": "name",
    "driver": "driver_version",
    "uuid": "uuid",
    "sm_mhz": "clocks.sm",
    "memory_mhz": "clocks.mem",
    "most_sm_mhz": "clocks.max.sm",
    "celsius": "temperature.gpu",
    "watts": "power.draw",
    "throttled": "clocks_throttle_reasons.active",
}
_IDLE = 0x1
"""The throttle reason that only says that the GPU is idle."""


@attrs.frozen(kw_only=True)
class GpuState:
    """The state of one GPU at one moment, such as its temperature and clocks.

    Attributes:
        values: the driver's values by name, as strings; empty if the driver gave no answer.
        problem: the reason if there are no values.
    """

    values: dict[str, str] = attrs.field(factory=dict)
    problem: str = ""

    @property
    def slowed_down(self) -> bool:
        """Whether heat, a power limit or a setting makes the GPU run below its normal clocks."""
        text = self.values.get("throttled", "")
        try:
            return bool(int(text, 16) & ~_IDLE)
        except ValueError:
            return False

    def to_json(self) -> dict[str, Any]:
        """The GPU's values, or the reason why there are none, for the run's records."""
        if self.problem:
            return {"clocks": f"not watched: {self.problem}"}
        return {**self.values, "slowed_down": self.slowed_down}


def count_gpus() -> tuple[int, str]:
    """The number of GPUs that this process may use, and the reason if there are none."""
    listed, problem = _query(["--query-gpu=uuid", "--format=csv,noheader"])
    visible = _visible_gpus()
    if visible is not None and listed:
        return len(visible), "" if visible else f"{_VISIBLE} hides all GPUs"
    return len(listed), problem or ("" if listed else "the driver knows no GPU")


def _visible_gpus() -> list[str] | None:
    """The names in ``CUDA_VISIBLE_DEVICES``; None if this process may use all GPUs."""
    text = os.environ.get(_VISIBLE)
    if text is None:
        return None
    return [name.strip() for name in text.split(",") if name.strip() not in {"", "-1"}]


def read_gpu_state(index: int) -> GpuState:
    """Ask NVIDIA's driver for the current state of a GPU."""
    visible = _visible_gpus()
    name = str(index) if visible is None or index >= len(visible) else visible[index]
    lines, problem = _query(
        [
            f"--id={name}",
            f"--query-gpu={','.join(_FIELDS.values())}",
            "--format=csv,noheader,nounits",
        ]
    )
    if problem or not lines:
        return GpuState(problem=problem or "the driver does not know it")
    values = [value.strip() for value in lines[0].split(",")]
    return GpuState(values=dict(zip(_FIELDS, values, strict=False)))


def _query(arguments: list[str]) -> tuple[list[str], str]:
    program = shutil.which(_PROGRAM)
    if program is None:
        return [], f"there is no {_PROGRAM} here"
    try:
        process = subprocess.run(
            [program, *arguments], capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return [], f"{_PROGRAM} failed: {error}"
    if process.returncode != 0:
        output = (process.stderr or process.stdout).strip().splitlines()
        return [], f"{_PROGRAM} failed: {output[0] if output else process.returncode}"
    return [line for line in process.stdout.splitlines() if line.strip()], ""
