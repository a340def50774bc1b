"""What a core of each kind can do in a cycle, by LLVM's name of it.

From the vendors' optimisation manuals (Intel 64 and IA-32 Architectures Optimization Reference
Manual; AMD's Software Optimization Guides for families 17h to 1Ah; Arm's guides for Cortex and
Neoverse), Agner Fog's instruction tables and uops.info. Rates of caches are those that loops
sustain, not peaks; those of Zen 4 were measured, and hold for other kinds where no manual says.
"""

from __future__ import annotations

import attrs

_KIB = 1024
_MIB = 1024 * _KIB


@attrs.frozen(kw_only=True)
class Core:
    """One kind of core; rates are per cycle of its own clock.

    Attributes:
        fma_units: vector multiply-adds started in a cycle, of vectors as wide as a unit.
        fma_bytes: of vectors multiplied and added in a cycle by all units.
        fma_latency: cycles until a sum can be added to again.
        load_units: loads started in a cycle, of vectors as wide as a unit or of elements that
            fill one.
        load_bytes: loaded from L1 in a cycle by all units.
        l2_rate: sustained bytes per cycle from the second-level cache.
        l3_rate: sustained bytes per cycle from the last-level cache, all cores at work.
        memory_rate: bytes per cycle from memory for each of a few cores: where a processor has
            many at work it is less, and measuring it (``chameleon cpu --measure``) pays.
        l1_bytes: usual size of the data cache.
        l2_bytes: usual size of the second-level cache.
        l3_bytes: usual size of the last-level cache.
    """

    fma_units: int = 2
    fma_bytes: int = 64
    fma_latency: int = 4
    load_units: int = 2
    load_bytes: int = 64
    l2_rate: float = 24.6
    l3_rate: float = 16.0
    memory_rate: float = 6.4
    l1_bytes: int = 32 * _KIB
    l2_bytes: int = _MIB
    l3_bytes: int = 16 * _MIB


_OLD_ZEN = Core(fma_bytes=32, load_bytes=32, fma_latency=5, l2_bytes=512 * _KIB, l3_bytes=8 * _MIB)
_ZEN3 = Core(l2_bytes=512 * _KIB, l3_bytes=32 * _MIB)
_ZEN4 = Core(l3_bytes=32 * _MIB)
_ZEN5 = Core(fma_bytes=128, load_bytes=128, l2_rate=49.0, l1_bytes=48 * _KIB, l3_bytes=32 * _MIB)
_HASWELL = Core(fma_latency=5, l2_rate=25.0, l3_rate=14.0, l2_bytes=256 * _KIB, l3_bytes=8 * _MIB)
_SKYLAKE = Core(l2_rate=48.0, l3_rate=18.0, l2_bytes=256 * _KIB, l3_bytes=8 * _MIB)
_ICE_CLIENT = attrs.evolve(_SKYLAKE, load_bytes=128, l1_bytes=48 * _KIB, l2_bytes=512 * _KIB)
_ALDER = attrs.evolve(_SKYLAKE, load_units=3, load_bytes=96, l1_bytes=48 * _KIB, l2_bytes=_MIB)
_SKYLAKE_SERVER = Core(fma_bytes=128, load_bytes=128, l2_rate=48.0, l3_rate=10.0)
_ICE_SERVER = attrs.evolve(
    _SKYLAKE_SERVER, l1_bytes=48 * _KIB, l2_bytes=1280 * _KIB, l3_bytes=32 * _MIB
)
_SAPPHIRE = attrs.evolve(_ICE_SERVER, l2_bytes=2 * _MIB)

_ARM = Core(
    fma_bytes=32, load_bytes=32, l2_rate=16.0, l3_rate=8.0, memory_rate=4.0,
    l1_bytes=64 * _KIB, l3_bytes=32 * _MIB,
)  # fmt: skip
_A53 = attrs.evolve(
    _ARM, fma_units=1, fma_bytes=8, load_units=1, load_bytes=8, fma_latency=8, l2_rate=8.0,
    memory_rate=1.0, l1_bytes=32 * _KIB, l2_bytes=512 * _KIB, l3_bytes=512 * _KIB,
)  # fmt: skip
# Sums are handed on early between multiply-adds, three to four cycles before other users get them.
_A72 = attrs.evolve(
    _ARM, fma_units=1, fma_bytes=16, load_units=1, load_bytes=16, fma_latency=3, memory_rate=2.0,
    l1_bytes=32 * _KIB, l3_bytes=_MIB,
)  # fmt: skip
_N1 = attrs.evolve(_ARM, fma_latency=2)
_V1 = attrs.evolve(_N1, fma_units=4, fma_bytes=64, load_units=3, load_bytes=48, l2_rate=32.0)
_APPLE = attrs.evolve(
    _ARM, fma_units=4, fma_bytes=64, load_units=3, load_bytes=48, l2_rate=32.0, l3_rate=16.0,
    memory_rate=16.0, l1_bytes=128 * _KIB, l2_bytes=12 * _MIB, l3_bytes=12 * _MIB,
)  # fmt: skip
_A64FX = attrs.evolve(
    _ARM, fma_units=2, fma_bytes=32, fma_latency=9, l2_rate=32.0, memory_rate=8.0,
    l2_bytes=8 * _MIB, l3_bytes=8 * _MIB,
)  # fmt: skip

_KNOWN = {
    "znver1": _OLD_ZEN,
    "znver2": attrs.evolve(_ZEN3, fma_latency=5, l3_bytes=16 * _MIB),
    "znver3": _ZEN3,
    "znver4": _ZEN4,
    "znver5": _ZEN5,
    "haswell": _HASWELL,
    "broadwell": _HASWELL,
    "skylake": _SKYLAKE,
    "icelake-client": _ICE_CLIENT,
    "rocketlake": _ICE_CLIENT,
    "tigerlake": attrs.evolve(_ICE_CLIENT, l2_bytes=1280 * _KIB),
    **dict.fromkeys(("alderlake", "raptorlake", "meteorlake"), _ALDER),
    **dict.fromkeys(("arrowlake", "arrowlake-s", "lunarlake", "pantherlake"), _ALDER),
    **dict.fromkeys(("skylake-avx512", "cascadelake", "cooperlake"), _SKYLAKE_SERVER),
    "icelake-server": _ICE_SERVER,
    **dict.fromkeys(("sapphirerapids", "emeraldrapids"), _SAPPHIRE),
    **dict.fromkeys(("graniterapids", "graniterapids-d", "diamondrapids"), _SAPPHIRE),
    **dict.fromkeys(("cortex-a53", "cortex-a55"), _A53),
    **dict.fromkeys(("cortex-a57", "cortex-a72", "cortex-a73"), _A72),
    **dict.fromkeys(("cortex-a76", "cortex-a77", "cortex-a78"), _N1),
    **dict.fromkeys(("neoverse-n1", "neoverse-n2", "neoverse-n3"), _N1),
    **dict.fromkeys(("neoverse-v1", "neoverse-v2", "neoverse-v3"), _V1),
    **dict.fromkeys(("cortex-x1", "cortex-x2", "cortex-x3", "cortex-x4"), _V1),
    "a64fx": _A64FX,
    **dict.fromkeys((f"apple-m{number}" for number in range(1, 6)), _APPLE),
}


def core_of(mcpu: str, architecture: str) -> Core:
    """The kind of core that LLVM's name means; one of today's where the name says nothing.

    Args:
        mcpu: LLVM's name.
        architecture: ``x86_64`` or ``aarch64``.
    """
    return _KNOWN.get(mcpu, _ARM if architecture == "aarch64" else Core())
