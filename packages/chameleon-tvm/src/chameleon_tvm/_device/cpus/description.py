"""The description of a CPU that schedules, first guesses and time estimates read."""

from __future__ import annotations

import json
from pathlib import Path

import attrs
import numpy as np
from chameleon_system.api import own_architecture, usable_cores

from chameleon_tvm._device.cpus.features import cpu_architecture, cpu_features
from chameleon_tvm._device.cpus.memory import stored_memory_rate
from chameleon_tvm._device.cpus.naming import native_name

_KIB = 1024
_MIB = 1024 * _KIB


@attrs.frozen(kw_only=True)
class Core:
    """A kind of CPU core. Rates are per cycle of the core's clock.

    Attributes:
        fma_units: Vector multiply-adds that the core starts per cycle, of vectors as wide as a
            unit.
        fma_bytes: Bytes of vectors that all units together multiply and add per cycle.
        fma_latency: Cycles until a sum can be used by the next multiply-add.
        load_units: Loads that the core starts per cycle, of vectors as wide as a unit, or of single
            elements broadcast to such a vector.
        load_bytes: Bytes that all load units together load from L1 per cycle.
        l2_rate: Sustained bytes per cycle from the second-level cache.
        l3_rate: Sustained bytes per cycle from the last-level cache, with all cores at work.
        memory_rate: Bytes per cycle from memory for each core, if few cores are at work. With many
            cores at work the rate is lower; ``chameleon cpu --measure`` measures it.
        l1_bytes: Usual size of the first-level data cache.
        l2_bytes: Usual size of the second-level cache.
        l3_bytes: Usual size of the last-level cache.
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
# The CPU forwards sums to the next multiply-add three to four cycles before other instructions.
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

_CORES = {
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
    """The description of a CPU's core by LLVM's name; that of a typical core if it is unknown."""
    return _CORES.get(mcpu, _ARM if architecture == "aarch64" else Core())


_SYSFS = Path("/sys/devices/system/cpu")


@attrs.frozen(kw_only=True)
class TargetInfo:
    """The facts that a CPU schedule needs about its target. Rates are per cycle and core.

    Attributes:
        vector_bytes: Width of a vector register in bytes.
        vector_registers: Number of vector registers.
        fma: Whether multiply and add are one instruction.
        memory_operands: Whether an operand of a multiply-add may be in memory, as on x86.
        fma_units: Number of units that multiply and add vectors.
        fma_per_cycle: Multiply-adds of whole vectors that the core starts per cycle. On Zen 4, an
            AVX-512 vector takes both units.
        fma_latency: Cycles until a sum can be used by the next multiply-add.
        loads_per_cycle: Whole vectors that the core loads from L1 per cycle.
        broadcasts_per_cycle: Single elements that the core loads into all lanes per cycle.
        l2_bytes_per_cycle: Sustained bytes per cycle from the second-level cache.
        l3_bytes_per_cycle: Sustained bytes per cycle from the last-level cache.
        memory_bytes_per_cycle: Bytes per cycle from memory: the rate that ``cpus.memory`` keeps, or
            else the core's usual rate.
        l1_bytes: Size of a core's first-level data cache.
        l2_bytes: Size of a core's second-level cache.
        l3_bytes: Size of the last-level cache that the core shares with other cores.
        cores: Number of cores that kernels run on.
    """

    vector_bytes: int
    vector_registers: int
    fma: bool
    memory_operands: bool
    fma_units: int
    fma_per_cycle: float
    fma_latency: int
    loads_per_cycle: float
    broadcasts_per_cycle: float
    l2_bytes_per_cycle: float
    l3_bytes_per_cycle: float
    memory_bytes_per_cycle: float
    l1_bytes: int
    l2_bytes: int
    l3_bytes: int
    cores: int

    def lanes(self, dtype: str) -> int:
        """Number of elements of a dtype in one vector register."""
        return max(1, self.vector_bytes // np.dtype(dtype).itemsize)

    @property
    def sums_in_flight(self) -> int:
        """Number of vectors of sums that keep all multiply-add units busy."""
        return round(self.fma_per_cycle * self.fma_latency)

    def flop_per_byte(self, bytes_per_cycle: float) -> float:
        """Number of float32 operations that the core could do while one byte arrives."""
        lanes = self.vector_bytes // np.dtype("float32").itemsize
        return 2.0 * lanes * self.fma_per_cycle / bytes_per_cycle

    @property
    def l2_vector_fmas(self) -> float:
        """Number of vector multiply-adds that the core could do while L2 delivers one vector."""
        return self.vector_bytes * self.fma_per_cycle / self.l2_bytes_per_cycle


def describe(target: str) -> TargetInfo:
    """The facts about a canonical CPU target."""
    architecture, values = cpu_architecture(target), json.loads(target)
    mcpu = str(values.get("mcpu", ""))
    core = core_of(mcpu, architecture)
    vector_bytes, registers, fma = _vectors(cpu_features(target), architecture)
    here = is_this_cpu(target)
    defaults = core.l1_bytes, core.l2_bytes, core.l3_bytes
    l1, l2, l3 = (_sysfs_caches() if here else None) or defaults
    cores = int(values.get("num-cores", 1))
    memory = stored_memory_rate(mcpu, cores) if here else None
    return TargetInfo(
        vector_bytes=vector_bytes,
        vector_registers=registers,
        fma=fma,
        memory_operands=architecture == "x86_64",
        fma_units=core.fma_units,
        fma_per_cycle=_per_cycle(core.fma_units, core.fma_bytes, vector_bytes),
        fma_latency=core.fma_latency,
        loads_per_cycle=_per_cycle(core.load_units, core.load_bytes, vector_bytes),
        broadcasts_per_cycle=float(core.load_units),
        l2_bytes_per_cycle=core.l2_rate,
        l3_bytes_per_cycle=core.l3_rate,
        memory_bytes_per_cycle=core.memory_rate if memory is None else memory,
        l1_bytes=l1,
        l2_bytes=l2,
        l3_bytes=l3,
        cores=cores,
    )


def is_this_cpu(target: str) -> bool:
    """Whether a canonical llvm target names the CPU of this machine."""
    same = cpu_architecture(target) == own_architecture()
    return same and json.loads(target).get("mcpu") == native_name().mcpu


def _per_cycle(units: int, total_bytes: int, vector_bytes: int) -> float:
    return min(float(units), total_bytes / vector_bytes)


def _vectors(features: frozenset[str], architecture: str) -> tuple[int, int, bool]:
    """Bytes of a vector register, number of registers, and whether the target has FMA.

    LLVM's ``llvm_get_vector_width`` returns 512 bits for every x86 CPU.
    """
    if architecture == "aarch64":
        return 16, 32, True
    if "avx512f" in features:
        return 64, 32, True
    if "avx" in features:
        return 32, 16, "fma" in features
    return 16, 16, "fma" in features


def _sysfs_caches() -> tuple[int, int, int] | None:
    """Bytes of L1 data, L2 and L3 of a core of this machine; None if Linux does not list them."""
    sizes: dict[str, int] = {}
    core = _SYSFS / f"cpu{usable_cores()[0]}" / "cache"
    for index in sorted(core.glob("index*")):
        try:
            kind = (index / "type").read_text().strip()
            level = (index / "level").read_text().strip()
            size = (index / "size").read_text().strip()
        except OSError:
            continue
        if kind != "Instruction" and size.endswith("K"):
            sizes[level] = int(size[:-1]) * _KIB
    if "1" not in sizes or "2" not in sizes:
        return None
    return sizes["1"], sizes["2"], sizes.get("3", sizes["2"])
