"""Facts about the processor from the operating system: its vendor, model and instructions.

Only the flags say which instructions code may use, since a virtual machine may report any model
number. If a process uses an instruction whose flag is missing, the system ends the process.
"""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import attrs

CPUINFO = Path("/proc/cpuinfo")
_ARM = ("aarch64", "arm64")
_MAC_FLAGS = {
    "avx1_0": "avx",
    "lzcnt": "abm",
    "sse3": "pni",
    "advsimd": "asimd",
    "dotprod": "asimddp",
    "fp16": "asimdhp",
    "fhm": "asimdfhm",
    "fcma": "fcma",
    "lse": "atomics",
    "rdm": "asimdrdm",
}
"""Linux's names of flags that have another name on macOS. Dots in the names on macOS are replaced
by underscores."""
_X86_64_V2 = ("ssse3", "sse4_1", "sse4_2", "popcnt")
"""Flags of the instructions that the level x86-64-v2 of the System V ABI adds. Wheels of NumPy use
them from version 2.4 on without asking the processor, and so do XGBoost and LightGBM."""


@attrs.frozen(kw_only=True)
class Processor:
    """A processor as its operating system describes it. Strings are empty if nothing is known.

    Attributes:
        architecture: ``x86_64`` or ``aarch64``.
        vendor: such as ``GenuineIntel``; on ARM the implementer, such as ``0x41``.
        family: the family of an x86 processor; 0 on ARM.
        model: the model of an x86 processor; on ARM the part number.
        name: as the vendor writes it.
        flags: the features that all processors of the machine have, by Linux's names.
    """

    architecture: str
    vendor: str = ""
    family: int = 0
    model: int = 0
    name: str = ""
    flags: frozenset[str] = frozenset()

    @property
    def missing_flags(self) -> tuple[str, ...]:
        """Flags that an x86 processor lacks to have all vector instructions of x86-64-v2."""
        level = _X86_64_V2 if self.architecture == "x86_64" else ()
        return tuple(flag for flag in level if flag not in self.flags)


def parse_cpuinfo(text: str, architecture: str) -> Processor | None:
    """Read a processor from the content of ``/proc/cpuinfo``; None without flags.

    An emulator may show the file of its host, which has no flags of this architecture.
    """
    key = "Features" if architecture == "aarch64" else "flags"
    blocks = [block for block in _blocks(text) if key in block]
    if not blocks:
        return None
    last = blocks[-1]  # on ARM, this is usually a large core
    named = {name: value for block in _blocks(text) for name, value in block.items()}
    return Processor(
        architecture=architecture,
        vendor=last.get("vendor_id", last.get("CPU implementer", "")),
        family=_number(last.get("cpu family", "")),
        model=_number(last.get("model", last.get("CPU part", ""))),
        name=named.get("model name", named.get("Hardware", "")),
        flags=frozenset.intersection(*(frozenset(block[key].split()) for block in blocks)),
    )


def parse_sysctl(text: str, architecture: str) -> Processor | None:
    """Read a processor from ``sysctl machdep.cpu hw.optional`` on macOS; None without flags."""
    values = dict(_pairs(text.splitlines()))
    named: list[str] = []
    for name in ("features", "leaf7_features", "extfeatures"):
        named += values.get(f"machdep.cpu.{name}", "").split()
    for name, value in values.items():
        if name.startswith("hw.optional.") and value == "1":
            named.append(name.rpartition(".")[2].removeprefix("FEAT_"))
    plain = [name.lower().replace(".", "_") for name in named]
    if not plain:
        return None
    return Processor(
        architecture=architecture,
        vendor=values.get("machdep.cpu.vendor", ""),
        family=_number(values.get("machdep.cpu.family", "")),
        model=_number(values.get("machdep.cpu.model", "")),
        name=values.get("machdep.cpu.brand_string", ""),
        flags=frozenset(_MAC_FLAGS.get(flag, flag) for flag in plain),
    )


@cache
def this_processor() -> Processor | None:
    """The processor of this machine, or None if the system does not describe it."""
    architecture = own_architecture()
    if sys.platform == "darwin":
        return parse_sysctl(_sysctl(), architecture)
    try:
        text = CPUINFO.read_text(errors="replace")
    except OSError:
        return None
    return parse_cpuinfo(text, architecture)


def processor_name() -> str:
    """The name of this machine's processor; empty if the system does not report it."""
    processor = this_processor()
    return (processor.name if processor is not None else "") or platform.processor()


def own_architecture() -> str:
    """The architecture of this process, by Linux's name."""
    machine = platform.machine().lower()
    if machine in _ARM:
        return "aarch64"
    return "x86_64" if machine in {"amd64", "x86_64"} else machine


def _sysctl() -> str:
    program = shutil.which("sysctl")
    if program is None:
        return ""
    done = subprocess.run(
        [program, "machdep.cpu", "hw.optional"], capture_output=True, text=True, check=False
    )
    return done.stdout


def _blocks(text: str) -> Iterator[dict[str, str]]:
    for block in text.split("\n\n"):
        yield dict(_pairs(block.splitlines()))


def _pairs(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    for line in lines:
        name, colon, value = line.partition(":")
        if colon:
            yield name.strip(), value.strip()


def _number(text: str) -> int:
    try:
        return int(text, 0)
    except ValueError:
        return 0
