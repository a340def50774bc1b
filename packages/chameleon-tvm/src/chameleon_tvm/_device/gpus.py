"""Limits of NVIDIA GPUs, known from the target's architecture, without a device or a driver."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

import attrs
from chameleon_core.plugin_api import TargetError

_KIB = 1024
_ARCH = re.compile(r"sm_(\d+)(\d)[af]?")
_HINT = "Such as 'cuda -arch=sm_80', or a tag such as 'nvidia/nvidia-a100'."

DEFAULTS = {
    "max_threads_per_block": 1024,
    "max_shared_memory_per_block": 48 * _KIB,
    "registers_per_block": 64 * _KIB,
    "thread_warp_size": 32,
}
"""Limits of a block that all architectures since sm_50 share. Blocks may have more shared memory if
a launch requests it, but TVM's static allocations do not."""

MAX_REGISTERS_PER_THREAD = 255
MAX_VECTOR_BYTES = 16
"""Bytes of the widest load or store of one thread."""

TENSOR_CORES_SINCE, BFLOAT16_SINCE = (7, 0), (8, 0)
"""The first compute capabilities with tensor cores, and with bfloat16 on them."""

_MULTIPROCESSORS = {
    **dict.fromkeys(((5, 0), (5, 3), (6, 0), (6, 2)), (2048, 64, 32)),
    **dict.fromkeys(((5, 2), (6, 1), (7, 0), (7, 2)), (2048, 96, 32)),
    (7, 5): (1024, 64, 16),
    (8, 0): (2048, 164, 32),
    (8, 6): (1536, 100, 16),
    (8, 7): (1536, 164, 16),
    **dict.fromkeys(((8, 9), (12, 0), (12, 1)), (1536, 100, 24)),
    **dict.fromkeys(((9, 0), (10, 0), (10, 3)), (2048, 228, 32)),
    (11, 0): (1536, 228, 24),
}
"""Per compute capability: threads, KiB of shared memory and blocks that fit a multiprocessor (the
CUDA programming guide's table of technical specifications)."""


@attrs.frozen(kw_only=True)
class GpuInfo:
    """The facts that a GPU schedule needs about its target. Sizes of memory are in bytes.

    Attributes:
        arch: nvcc's name of the architecture, such as ``sm_80``.
        registers_per_block: 32-bit registers that the threads of a block share.
        threads_per_multiprocessor: Largest number of resident threads.
        blocks_per_multiprocessor: Largest number of resident blocks.
    """

    arch: str
    max_threads_per_block: int
    max_shared_memory_per_block: int
    registers_per_block: int
    warp_size: int
    threads_per_multiprocessor: int
    shared_per_multiprocessor: int
    blocks_per_multiprocessor: int


def capability(arch: str) -> tuple[int, int]:
    """The compute capability of a CUDA architecture, such as (8, 0) for ``sm_80``.

    Raises:
        TargetError: The architecture is unknown.
    """
    digits = _ARCH.fullmatch(arch)
    version = (int(digits[1]), int(digits[2])) if digits else None
    if version not in _MULTIPROCESSORS:
        known = ", ".join(f"sm_{major}{minor}" for major, minor in sorted(_MULTIPROCESSORS))
        raise TargetError(
            f"{arch!r} is not a CUDA architecture whose limits are known",
            hint=f"Known architectures are {known}.",
        )
    return version


def add_limits(value: dict[str, Any], *, device: bool) -> dict[str, Any]:
    """Add the usual limits of NVIDIA GPUs to a CUDA target's options.

    Raises:
        TargetError: The architecture is unknown, or missing on a machine without a GPU.
    """
    arch = value.get("arch")
    if arch is None and not device:
        raise TargetError(
            "the target 'cuda' names no architecture, and this machine has no GPU to ask",
            hint=_HINT,
        )
    if arch is not None:
        capability(str(arch))
    return {**DEFAULTS, **value}


@cache
def gpu_info(target: str) -> GpuInfo:
    """The limits of the GPU that a CUDA target names, such as its shared memory.

    Raises:
        TargetError: The target is no CUDA target, or its architecture is missing or unknown.
    """
    value = json.loads(target)
    if value.get("kind") != "cuda":
        raise TargetError(
            f"target kind {value.get('kind')!r} has no CUDA device to describe", hint=_HINT
        )
    if "arch" not in value:
        raise TargetError("the CUDA target names no architecture", hint=_HINT)
    arch = str(value["arch"])
    threads, shared, blocks = _MULTIPROCESSORS[capability(arch)]
    limits = {name: int(value.get(name, default)) for name, default in DEFAULTS.items()}
    return GpuInfo(
        arch=arch,
        warp_size=limits.pop("thread_warp_size"),
        **limits,
        threads_per_multiprocessor=threads,
        shared_per_multiprocessor=shared * _KIB,
        blocks_per_multiprocessor=blocks,
    )
