"""The versions and processor that a measurement server reports, and what code it can run."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from importlib import metadata
from typing import Any

import attrs
import structlog
from chameleon_core.plugin_api import TargetError
from chameleon_system.api import AMX, request_permission

from chameleon_tvm._building.kernel import device_kind
from chameleon_tvm._device.cpus.features import (
    host_features,
    llvm_target,
    unreported_features,
    used_features,
)
from chameleon_tvm._device.cpus.naming import CpuName, closest_cpu_name, native_name
from chameleon_tvm._device.cpus.registers import Reported
from chameleon_tvm._device.linking import architecture, host_triple
from chameleon_tvm._device.targets import tvm_target
from chameleon_tvm._instructions.selection import permissions_for
from chameleon_tvm._late_tvm import Target, codegen, tvm

FACTS_FUNCTION = "chameleon.server.facts"
"""Name of the function with which servers of ``chameleon serve`` report versions and processor as
JSON."""

_log = structlog.get_logger()

_SAME_VERSION = "Install the same version of apache-tvm on both sides."


@attrs.frozen(kw_only=True)
class ServerFacts:
    """The facts that a measurement server reported; a field is empty or zero if it is unknown.

    Attributes:
        tvm: Version of TVM.
        triple: LLVM's triple of the server's machine.
        cpu: LLVM's name of the server's processor.
        mattr: Features that the processor has and the name does not imply (``+``), or that the name
            implies and the processor lacks (``-``).
        guessed: Whether ``cpu`` is LLVM's guess from the model number, which may be wrong.
        refused: The reason for each permission that the server's system refuses, such as ``amx``.
        llvm: Major version of LLVM.
        gpu: Name of the device, if it is no CPU.
        compute: Compute capability of a CUDA device, such as ``9.0``.
    """

    tvm: str = ""
    triple: str = ""
    cpu: str = ""
    mattr: tuple[str, ...] = ()
    guessed: bool = False
    refused: dict[str, str] = attrs.field(factory=dict)
    llvm: int = 0
    gpu: str = ""
    compute: str = ""

    def to_json(self) -> dict[str, Any]:
        """The known facts as JSON values, for records of measurements."""
        return {name: value for name, value in attrs.asdict(self).items() if value}


def ask(
    function: Callable[[str], Any],
    device: tvm.runtime.Device,
    kind: str,
    *,
    processor: Callable[[str], Reported | None] = lambda _: None,
) -> ServerFacts:
    """Ask a measurement server for its versions, processor and device.

    A server that has only TVM's runtime cannot report the facts about LLVM.

    Args:
        function: A function of a name that returns the server's function of this name, or raises an
            error if the server has none.
        device: The device that kernels will run on.
        processor: A function of LLVM's triple of the server that asks the server's processor
            itself. It is called if kernels run on a CPU and the server does not report its flags.
    """

    def call(name: str) -> Any:
        with contextlib.suppress(AttributeError, ValueError, RuntimeError, tvm.error.InternalError):
            return function(name)()
        return None

    answer = call(FACTS_FUNCTION)
    reply = json.loads(str(answer)) if answer is not None else {}
    triple = str(call("target.llvm_get_system_triple") or "")
    cpu, refused, guessed = reply.get("cpu"), reply.get("refused", {}), False
    if cpu is None:
        guess = str(call("target.llvm_get_system_cpu") or "")
        reported = processor(triple) if triple and kind == "cpu" else None
        guessed = reported is None
        name = CpuName(mcpu=guess)
        if reported is not None:
            refused = reported.refused
            name = closest_cpu_name(reported.processor, guess or "generic", triple)
        cpu = name.options()
    gpu = {}
    if kind != "cpu" and device.exist:
        gpu = {"gpu": str(device.device_name or "")}
        if kind == "cuda":
            gpu["compute"] = str(device.compute_version or "")
    return ServerFacts(
        tvm=str(reply.get("tvm", "")),
        triple=triple,
        cpu=str(cpu["mcpu"]),
        mattr=tuple(cpu.get("mattr", ())),
        guessed=guessed and bool(cpu["mcpu"]),
        refused=refused,
        llvm=int(call("target.llvm_version_major") or 0),
        **gpu,
    )


def query_local(device: tvm.runtime.Device, kind: str) -> ServerFacts:
    """The facts about this process and a device of it, as ``ask`` reports those of a server."""

    def function(name: str) -> Any:
        return own_facts if name == FACTS_FUNCTION else tvm.get_global_func(name)

    return ask(function, device, kind)


def own_facts() -> str:
    """The versions of TVM and LLVM and the processor of this machine, as JSON.

    A measurement server returns it if a client calls ``FACTS_FUNCTION``. The call requests AMX for
    this process, if the processor has it.
    """
    reason = request_permission(AMX) if _AMX_TILE in host_features() else ""
    return json.dumps(
        {
            "tvm": tvm_version(),
            "cpu": native_name().options(),
            "refused": {AMX: reason} if reason else {},
        }
    )


def tvm_version() -> str:
    """The version of TVM that this process uses."""
    return metadata.version("apache-tvm")


def check(name: str, facts: ServerFacts, target: str, *, exists: bool) -> None:
    """Check that a server can run code for a target, as far as the server's facts are known.

    Args:
        name: Name of the server, for messages.
        facts: The facts that the server reported.
        target: The canonical target.
        exists: Whether the server has the device.

    Raises:
        TargetError: The server cannot run such code; the message describes both sides.
    """
    resolved = tvm_target(target)
    kind = device_kind(resolved)
    if facts.tvm and _release(facts.tvm) != _release(tvm_version()):
        raise TargetError(
            f"{name} runs TVM {facts.tvm}, and candidates are built with {tvm_version()} here",
            hint=_SAME_VERSION,
        )
    if not exists:
        raise TargetError(
            f"{name} has no {kind} device, which the target {_describe_target(resolved)} needs",
            hint="Check its driver and that its TVM was built with support for it, or change "
            "`target:`.",
        )
    _check_architecture(name, facts, resolved)
    if kind == "cpu":
        _check_features(name, facts, resolved)
        _check_permissions(name, facts, target)
    if kind == "cuda" and facts.compute:
        _check_compute(name, facts, resolved)


def _check_architecture(name: str, facts: ServerFacts, target: Target) -> None:
    required = architecture(host_triple(target))
    if facts.triple and architecture(facts.triple) != required:
        raise TargetError(
            f"{name} is a {architecture(facts.triple)} ({facts.cpu or facts.triple}), and the "
            f"target {_describe_target(target)} is built for {required}",
            hint=f"Add -mtriple={facts.triple} to the target, for a CUDA target to its host.",
        )


def _check_features(name: str, facts: ServerFacts, target: Target) -> None:
    """Refuse a server whose processor lacks vector instructions that the target uses.

    If only the model number says so, a warning is logged: a virtual machine may change it.
    """
    if not (facts.cpu and facts.triple) or facts.cpu in _UNKNOWN_CPUS:
        return
    if not codegen.llvm_is_valid_cpu(facts.cpu, facts.triple):
        return
    mattr = frozenset(facts.mattr)
    server = llvm_target(facts.cpu, triple=facts.triple, mattr=mattr)
    missing = sorted(_instructions(target) - _instructions(server))
    if not missing:
        return
    problem = f"lacks what the target {_describe_target(target)} uses: {', '.join(missing)}"
    if facts.guessed:
        _log.warning(
            "processor_only_guessed", device=name, guess=facts.cpu, problem=f"it {problem}"
        )
        return
    options = CpuName(mcpu=facts.cpu, mattr=facts.mattr).command_line()
    raise TargetError(
        f"{name} is a {facts.cpu}, which {problem}", hint=f"Write {options} in the target."
    )


def _check_permissions(name: str, facts: ServerFacts, target: str) -> None:
    """Refuse a server whose system forbids instructions that kernels for the target may use."""
    needed = permissions_for(target) if facts.refused else frozenset()
    for permission in sorted(facts.refused.keys() & needed):
        raise TargetError(
            f"the system of {name} refuses {permission.upper()} to its processes: "
            f"{facts.refused[permission]}",
            hint="Allow the system call arch_prctl there, which containers may forbid, or use a "
            "target without it, such as -mattr=-amx-tile.",
        )


_UNKNOWN_CPUS = ("generic", "x86-64")
"""LLVM's names for processors that it does not know. The first function that runs on such a
processor shows whether it has the instructions."""

_AMX_TILE = "amx-tile"


def _instructions(target: Target) -> frozenset[str]:
    return used_features(target) | unreported_features(target)


def _check_compute(name: str, facts: ServerFacts, target: Target) -> None:
    required = str(target.attrs.get("arch", "")).removeprefix("sm_").rstrip("af")
    has = facts.compute.replace(".", "")
    if not (required.isdigit() and has.isdigit()):
        return
    # Machine code runs on devices of the same generation that are not older.
    if int(required) // 10 != int(has) // 10 or int(required) > int(has):
        raise TargetError(
            f"{name} is a {facts.gpu or 'GPU'} of compute capability {facts.compute}, and the "
            f"target {_describe_target(target)} is built for sm_{required}",
            hint=f"Write -arch=sm_{has} in the target.",
        )


def _release(version: str) -> tuple[str, ...]:
    """Major and minor version of TVM; versions that share these can exchange modules."""
    return tuple(version.split(".")[:2])


def _describe_target(target: Target) -> str:
    """A target in the command-line form that users write, shortened."""
    options = [str(target.kind.name)]
    options += [
        f"-{name}={target.attrs[name]}"
        for name in ("mtriple", "mcpu", "arch")
        if target.attrs.get(name)
    ]
    return f"'{' '.join(options)}'"
