"""Describes for bug reports what kernels of this machine are compiled for, mostly without TVM."""

from __future__ import annotations

from typing import Any

from chameleon_core.plugin_api import NoOptions

from chameleon_tvm._device.cpus.naming import native_masking, native_name
from chameleon_tvm._device.targets import TVMTargets
from chameleon_tvm._instructions.selection import refused_permissions
from chameleon_tvm._spaces.template.arithmetic import describe_arithmetic


def describe_machine() -> dict[str, Any]:
    """Describe the target ``native``, for ``chameleon env``.

    ``refused`` has the operating system's reason for each permission that it refuses, and
    ``model_number`` says how the model number and the flags contradict each other.
    """
    target = TVMTargets(NoOptions()).resolve("native")
    return {
        "target": f"llvm {native_name().command_line()}",
        "kernels": describe_arithmetic(target),
        "refused": refused_permissions(target),
        "model_number": native_masking(),
    }
