"""Finds instructions in a library that a CPU lacks, without running them.

The tables have the instructions of x86 and ARM that compilers use. A CPU with AVX-512 is taken to
have the part that all servers have. The sources are volume 2 of Intel's Software Developer's
Manual, and ARM's Architecture Reference Manual for A-profile.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from chameleon_core.plugin_api import ChameleonError
from chameleon_system.api import own_architecture
from chameleon_tvm.api import tvm_target, used_features

_HALF_BITS = 16

Rules = Sequence[tuple[re.Pattern[str], str]]

_X86 = tuple(
    (re.compile(f"(?:{pattern})"), feature)
    for pattern, feature in (
        (r".* tmm", "amx-tile"),
        (r"gf2p8|vgf2p8", "gfni"),
        (r"\{vex\} vpdp", "avxvnni"),
        (r"vpdp", "avx512vnni"),
        (r"vdpbf16ps|vcvtne", f"avx512bf{_HALF_BITS}"),
        (r"vcvt(ph2ps|ps2ph) zmm", "avx512f"),
        (r"vcvt(ph2ps|ps2ph) ", "f16c"),
        (r"v\w+[ps]h |vcvt\w*ph", f"avx512fp{_HALF_BITS}"),
        (r"vperm(i2|t2)?b|vpmultishiftqb", "avx512vbmi"),
        (r"v(pcompress|pexpand)[bw]|vpsh[lr]d", "avx512vbmi2"),
        (r"vpopcnt[bw]|vpshufbitqmb", "avx512bitalg"),
        (r"vpopcnt[dq]", "avx512vpopcntdq"),
        (r"vpmadd52", "avx512ifma"),
        (r".* zmm", "avx512f"),
        (r"vfn?m(add|sub)", "fma"),
        (r"v(inserti|extracti|broadcasti)128|vpbroadcast|vp?gather|vpmaskmov", "avx2"),
        (r"vps[rl][la]v|vpblendd|vperm(d|q|ps|pd) ", "avx2"),
        (r"vp(?!test|erm2f128|ermilp)\w+ ymm", "avx2"),
        (r"v", "avx"),
        (r"andn[lq]? |bextr|bls(i|r|msk)", "bmi"),
        (r"bzhi|mulx|pdep|pext[lq]? |rorx|sarx|shlx|shrx", "bmi2"),
        (r"lzcnt", "lzcnt"),
        (r"movbe", "movbe"),
        (r"popcnt", "popcnt"),
        (r"pcmp[ei]str[im]|pcmpgtq|crc32", "sse4.2"),
        (r"blendv?p[sd]|pblend|dpp[sd]|(extract|insert)ps|movntdqa|mpsadbw|packusdw", "sse4.1"),
        (r"p(extr|insr)[bdq]|pcmpeqq|phminposuw|pm(ax|in)(s[bd]|u[wd])", "sse4.1"),
        (r"pmov[sz]x|pmul(dq|ld)|ptest|round[ps][sd]", "sse4.1"),
        (r"pabs|palignr|ph(add|sub)|pmaddubsw|pmulhrsw|pshufb|psign", "ssse3"),
        (r"addsubp|h(add|sub)p|lddqu|movddup|movs[hl]dup|fisttp", "sse3"),
    )
)
"""Patterns of an instruction with its widest kind of register, and the feature that it needs.

``tzcnt`` is left out: CPUs without it run the same bytes as ``bsf``, and compilers rely on that."""

_ARM = tuple(
    (re.compile(f"(?:{pattern})"), feature)
    for pattern, feature in (
        (r".* za", "sme"),
        (r".* z", "sve"),
        (r"fml[as]l", f"fp{_HALF_BITS}fml"),
        (r"fcmla|fcadd", "complxnum"),
        (r"usdot|sudot|u?s?mmla", "i8mm"),
        (r"[su]dot", "dotprod"),
        (r"bfdot|bfmmla|bfmlal|bfcvt", f"bf{_HALF_BITS}"),
        (r"sqrdml[as]h", "rdm"),
        (r"(?!fcvt(l|n|xn)?2? )(f\w+|[su]cvtf) h", f"fullfp{_HALF_BITS}"),
    )
)
"""The same for ARM.

Atomics (``lse``) are left out: GCC's library has them, and asks the CPU before it runs them."""

_MACHINES = {62: "x86_64", 183: "aarch64"}
"""Architectures by the number that the header of an ELF file has (elf.h)."""

_LINE = re.compile(r"\s*[0-9a-f]+:\t((?:\{\w+\} )?\w+)\s*(.*)")
_WIDE = re.compile(r"%zmm|%k[0-7]|%[xy]mm(?:1[6-9]|2\d|3[01])")
_SCALABLE, _TILE = re.compile(r"\bz\d|\bp\d"), re.compile(r"\bza\d?\b")
_HALF = re.compile(r"\bh\d|\.[48]?h\b")


def foreign_instructions(library: Path, target: str) -> dict[str, str]:
    """The instructions of a library that a target's CPU lacks, with the features that they need.

    Raises:
        ChameleonError: The library cannot be disassembled here.
    """
    with library.open("rb") as file:
        machine = _MACHINES.get(int.from_bytes(file.read(20)[18:], "little"), "")
    names = [f"{machine}-linux-gnu-objdump", "llvm-objdump"]
    if machine == own_architecture():
        names.insert(0, "objdump")
    command = next(filter(None, map(shutil.which, names)), None)
    if command is None or not machine:
        raise ChameleonError(
            "its instructions could not be checked", hint="Install objdump for its architecture."
        )
    described, rules = (_of_arm, _ARM) if machine == "aarch64" else (_of_x86, _X86)
    has = used_features(tvm_target(target))
    words = [command, "-d", "--no-show-raw-insn", str(library)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    lines = filter(None, map(_LINE.match, done.stdout.splitlines()))
    found = {described(*line.groups()) for line in lines}
    if done.returncode or not found:
        raise ChameleonError(f"its instructions could not be checked: {done.stderr[-200:]}")
    needed = {one.strip(): _needed(one, rules) for one in sorted(found)}
    return {name: feature for name, feature in needed.items() if feature and feature not in has}


def _of_arm(name: str, operands: str) -> str:
    """An instruction of ARM with a kind of its registers: tile, scalable, or of 16 bits."""
    kinds = {"za": _TILE, "z": _SCALABLE, "h": _HALF}
    return f"{name} {next((kind for kind, form in kinds.items() if form.search(operands)), '')}"


def _of_x86(name: str, operands: str) -> str:
    """An instruction of x86 with the widest kind of its registers."""
    if "%tmm" in operands:
        return f"{name} tmm"
    if _WIDE.search(operands):
        return f"{name} zmm"
    return f"{name} ymm" if "%ymm" in operands else f"{name} "


def _needed(instruction: str, rules: Rules) -> str:
    """The feature that an instruction needs; empty if all CPUs have it."""
    return next((feature for pattern, feature in rules if pattern.match(instruction)), "")
