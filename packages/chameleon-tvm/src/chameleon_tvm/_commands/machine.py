"""Describes for bug reports what kernels of this machine are compiled for, mostly without TVM."""

from __future__ import annotations

from typing import Any

from chameleon_core.plugin_api import NoOptions

from chameleon_tvm._device.cpus.naming import native_masking, native_name
from chameleon_tvm._device.targets import TVMTargets
from chameleon_tvm._instructions.choosing import refusals
from chameleon_tvm._spaces.template.arithmetic import describe_arithmetic


def describe_machine() -> dict[str, Any]:
    """Describe the target ``native``, for ``chameleon env``.

    Returns:
        ``target`` is the command-line form of ``native``. ``kernels`` has the instructions that
        templates multiply with for each dtype. ``refused`` has the operating system's reason for
        each permission that it refuses to this process. ``model_number`` says in which way the
        model number and the flags of the processor contradict each other; empty if they agree.
    """
    target = TVMTargets(NoOptions()).resolve("native")
    return {
        "target": f"llvm {native_name().words()}",
        "kernels": describe_arithmetic(target),
        "refused": refusals(target),
        "model_number": native_masking(),
    }
