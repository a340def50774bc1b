"""Resolves the target that a user writes to canonical JSON, and describes it for schedules."""

from __future__ import annotations

import difflib
import json
import shlex
from collections.abc import Iterable
from functools import cache
from typing import Any

import attrs
from chameleon_core.plugin_api import NoOptions, TargetError, TargetResolver
from chameleon_system.api import own_architecture, usable_cores

from chameleon_tvm._device.cpus.description import TargetInfo, describe
from chameleon_tvm._device.cpus.features import llvm_target, target_features, used_features
from chameleon_tvm._device.cpus.naming import native_name
from chameleon_tvm._device.file_cache import cached_in_file
from chameleon_tvm._device.gpus import add_limits, gpu_info
from chameleon_tvm._device.linking import architecture, host_triple, own_triple
from chameleon_tvm._late_tvm import Target, TargetKind, codegen, tvm

_HINT = (
    "Write 'native', a CPU such as 'llvm -mcpu=znver4 -num-cores=2', "
    "or a tag such as 'nvidia/nvidia-h100'."
)


class TVMTargets(TargetResolver):
    """Resolves ``native``, every target that TVM accepts, and TVM's former command-line form."""

    def __init__(self, options: NoOptions) -> None:
        del options

    def resolve(self, text: str) -> str:
        return _resolve(text.strip())

    def foreign(self, target: str) -> str:
        # The runner `local` also times kernels on a GPU of this machine.
        return foreign_kind(target) if kind_of(target) == "llvm" else ""

    def describe(self, target: str) -> dict[str, Any]:
        value = json.loads(target)
        kind = str(value["kind"])
        if kind == "cuda":
            return _describe_gpu(target)
        if kind != "llvm":
            return {"kind": kind}
        features = sorted(used_features(tvm_target(target)))
        return {
            "kind": kind,
            "mcpu": str(value.get("mcpu", "")),
            "features": features,
            **attrs.asdict(target_info(target)),
        }


@cached_in_file(lambda target: kind_of(target) == "llvm")
def _resolve(text: str) -> str:
    """The canonical form of a text; what GPUs are here is looked up each time."""
    if text == "native":
        text = "llvm -mcpu=native"
    if text.startswith("{"):
        return _canonical(_parse_json(text))
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise TargetError(f"target {text!r} cannot be read: {error}", hint=_HINT) from None
    if not words:
        raise TargetError("the target is empty", hint=_HINT)
    if "/" in words[0]:
        return _canonical(_parse_tag(words))
    kind = _known_kind(words[0])
    return _canonical({"kind": kind, **_parse_options(kind, words[1:])})


def _describe_gpu(target: str) -> dict[str, Any]:
    """A GPU's limits; only its kind if the limits of its architecture are unknown."""
    try:
        return {"kind": "cuda", "features": [], **attrs.asdict(gpu_info(target))}
    except TargetError:
        return {"kind": "cuda"}


def _parse_json(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise TargetError(f"target {text!r} is not valid JSON: {error}", hint=_HINT) from None
    if "kind" not in value:
        raise TargetError("the target has no 'kind'", hint='Such as {"kind": "llvm"}.')
    if value["kind"] == "native":
        raise TargetError(
            "'native' is no kind of target",
            hint="Write `target: native`, or {kind: llvm, mcpu: native, num-cores: 2}.",
        )
    _check_options(dict(value))
    return dict(value)


def _check_options(value: dict[str, Any]) -> None:
    """Check that a target's kind has all given options, and that string options are strings.

    TVM itself reports all other faults.
    """
    known = _known_options(_known_kind(str(value["kind"])))
    for name, option in value.items():
        if name not in known and "." not in name:
            problem = f"target {value['kind']!r} has no option {name!r}"
            raise TargetError(problem, hint=_did_you_mean(name, known))
        if known.get(name) == "str" and not isinstance(option, str):
            raise TargetError(
                f"target option {name!r} needs a string, not {option!r}",
                hint='Such as {"kind": "llvm", "mcpu": "znver4"}.',
            )


def _known_kind(kind: str) -> str:
    kinds = [str(name) for name in Target.list_kinds()]
    if kind not in kinds:
        raise TargetError(f"there is no target kind {kind!r}", hint=_did_you_mean(kind, kinds))
    return kind


def _did_you_mean(
    word: str,
    known: Iterable[str],
    template: str = "{!r}",
    *,
    count: int = 1,
    cutoff: float = 0.6,
    otherwise: str = _HINT,
) -> str:
    """A hint that names what resembles a word, at most ``count`` of them; else ``otherwise``."""
    matches = difflib.get_close_matches(word, list(known), n=count, cutoff=cutoff)
    return f"Did you mean {' or '.join(map(template.format, matches))}?" if matches else otherwise


def _known_options(kind: str) -> dict[str, str]:
    """The type of every option that targets of a kind have, by the option's name."""
    return {str(k): str(v) for k, v in TargetKind.options_from_name(kind).items()}


def _parse_tag(words: list[str]) -> dict[str, Any]:
    tags = [str(tag) for tag in tvm.target.list_tags()]
    if words[0] not in tags:
        hint = _did_you_mean(words[0], tags, "{}", count=3, cutoff=0.5)
        raise TargetError(f"there is no target tag {words[0]!r}", hint=hint)
    exported = json.loads(str(Target(words[0])))
    return {**exported, **_parse_options(str(exported["kind"]), words[1:])}


def _parse_options(kind: str, words: list[str]) -> dict[str, Any]:
    """Parse options in the form ``-name=value`` into values of TVM's types."""
    known = _known_options(kind)
    options: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.lstrip("-").partition("=")
        if not word.startswith("-") or name not in known:
            otherwise = f"It has {', '.join(sorted(known))}."
            hint = _did_you_mean(name, known, "-{}", otherwise=otherwise)
            raise TargetError(f"target {kind!r} has no option {word!r}", hint=hint)
        options[name] = _parse_option(name, known[name], value if equals else "1")
    return options


def _parse_option(name: str, kind: str, value: str) -> Any:
    if kind == "int":
        try:
            return int(value)
        except ValueError:
            raise TargetError(
                f"target option -{name} needs a number, not {value!r}", hint=f"Such as -{name}=2."
            ) from None
    if kind == "bool":
        return value not in {"0", "false", "False"}
    if kind.startswith("Array"):
        return value.split(",")
    return value


def _is_of_32_bits(mcpu: str, triple: str) -> bool:
    """Whether a CPU cannot run a triple's code, for which LLVM would end the process."""
    if architecture(triple) != "x86_64":
        return False
    return "64bit" not in target_features(llvm_target(mcpu, triple=triple))


def _canonical(value: dict[str, Any]) -> str:
    """A target's options as JSON with sorted keys, ``native`` resolved and defaults added."""
    if value["kind"] == "llvm":
        triple = str(value.get("mtriple", codegen.llvm_get_system_triple()))
        if value.get("mcpu") == "native":
            value = _resolve_native(value, triple)
        mcpu = value.get("mcpu")
        if mcpu is not None and not codegen.llvm_is_valid_cpu(mcpu, triple):
            cpus = [str(cpu) for cpu in codegen.llvm_get_cpu_archlist(Target({"kind": "llvm"}))]
            hint = _did_you_mean(str(mcpu), cpus, "{}", count=3, otherwise="Use -mcpu=native.")
            raise TargetError(f"LLVM knows no CPU {mcpu!r} for {triple}", hint=hint)
        if mcpu is not None and _is_of_32_bits(mcpu, triple):
            raise TargetError(f"the CPU {mcpu!r} has no 64-bit code", hint="Use -mcpu=native.")
        value.setdefault("num-cores", len(usable_cores()))
    if value["kind"] == "cuda":
        value = add_limits(value, device=tvm.runtime.device("cuda").exist)
    try:
        resolved = json.loads(str(Target(value)))
    except (ValueError, TypeError, tvm.error.InternalError) as error:
        problem = str(error).split("Target creation")[0].strip()
        raise TargetError(f"TVM refuses the target: {problem}", hint=_HINT) from None
    # Features follow from the CPU; TVM computes them again and refuses them as input.
    options = {k: v for k, v in resolved.items() if v != "" and not k.startswith("feature.")}
    return json.dumps(options, sort_keys=True)


def _resolve_native(value: dict[str, Any], triple: str) -> dict[str, Any]:
    """A target for this machine's CPU; the user's features come after the CPU's own features."""
    if architecture(triple) != own_architecture():
        raise TargetError(
            f"'native' is this machine's CPU, and the target is built for {triple}",
            hint="Name the CPU that kernels run on, such as -mcpu=cortex-a72.",
        )
    options = native_name().options()
    mattr = [*options.get("mattr", ()), *value.get("mattr", ())]
    return {**value, **options, **({"mattr": mattr} if mattr else {})}


def kind_of(target: str) -> str:
    """The kind of a canonical target, such as ``llvm``.

    Raises:
        TargetError: The string is no valid target.
    """
    try:
        return str(json.loads(target)["kind"])
    except (ValueError, TypeError, KeyError):
        return str(tvm_target(target).kind.name)


@cache
def tvm_target(target: str) -> Target:
    """Convert a canonical target to TVM's target object.

    Args:
        target: The canonical target, a JSON string.

    Raises:
        TargetError: The string is no valid target.
    """
    try:
        return Target(json.loads(target))
    except (ValueError, TypeError, tvm.error.InternalError) as error:
        problem = str(error).split("Target creation")[0].strip()
        raise TargetError(f"{target!r} is no target: {problem}", hint=_HINT) from error


__all__ = ["TVMTargets", "TargetInfo", "kind_of", "target_info", "tvm_target"]


@cache
def target_info(target: str) -> TargetInfo:
    """The description of a CPU target's core: vectors, caches and rates.

    Raises:
        TargetError: The target is no CPU.
    """
    kind = kind_of(target)
    if kind != "llvm":
        raise TargetError(
            f"target kind {kind!r} has no CPU to describe",
            hint="Use an llvm target, or `space: sketch`.",
        )
    return describe(target)


def foreign_kind(target: str) -> str:
    """The kind of processor of a target, or an empty string if it is a CPU like this machine's.

    Args:
        target: The canonical target.
    """
    resolved = tvm_target(target)
    if resolved.kind.name != "llvm":
        return str(resolved.kind.name)
    required = architecture(host_triple(resolved))
    return "" if required == architecture(own_triple()) else required
