"""Describes a CPU, and measures its peak rate and the bandwidth of its memory."""

from __future__ import annotations

import json
import os
from typing import Any

import attrs
import numpy as np
from chameleon_core.plugin_api import NoOptions, TargetError

from chameleon_tvm import _emit as emit
from chameleon_tvm._building.clock import accumulation_loop, vector_clock
from chameleon_tvm._building.kernel import Program, TVMKernel
from chameleon_tvm._device.cpus.description import TargetInfo, is_this_cpu
from chameleon_tvm._device.cpus.features import used_features
from chameleon_tvm._device.cpus.memory import store_memory_rate
from chameleon_tvm._device.targets import TVMTargets, target_info, tvm_target
from chameleon_tvm._instructions.selection import package_records_of, plugin_records_of
from chameleon_tvm._quick_tvm import tvm
from chameleon_tvm._spaces.template.arithmetic import describe_arithmetic

_CYCLES = 300_000
_TIMES_L3 = 4
_LEAST_BYTES = 256 << 20
_STREAMS = 8
_REPEATS = 10


@attrs.frozen(kw_only=True)
class CpuMeasurement:
    """Measured rates of a CPU with all cores at work.

    Attributes:
        flops: Multiplications and additions of float32 per second.
        memory_bytes: Bytes read from memory per second.
        memory_rate: Bytes read from memory per core and cycle. The cycle follows from ``flops``.
    """

    flops: float
    memory_bytes: float
    memory_rate: float


def measure(target: str, info: TargetInfo) -> CpuMeasurement:
    """Measure this machine's CPU: the best of several repeats, in a few seconds."""
    # Otherwise, TVM's pool has a thread for every two logical cores.
    os.environ.setdefault("TVM_NUM_THREADS", str(info.cores))
    tvm.get_global_func("runtime.config_threadpool")(1, info.cores)
    lanes = info.lanes("float32")
    clock = vector_clock(target, cycles=_CYCLES)
    flops = clock.operations / _fastest_repeat(clock.program, target)
    size = _stream_bytes(info)
    rows = size // (4 * info.cores * _STREAMS * lanes)
    read = 4.0 * info.cores * rows * _STREAMS * lanes
    memory_bytes = read / _fastest_repeat(_read_program(info.cores, rows, lanes), target)
    cycles = flops / (2.0 * lanes * info.fma_per_cycle)
    return CpuMeasurement(flops=flops, memory_bytes=memory_bytes, memory_rate=memory_bytes / cycles)


def _fastest_repeat(program: Program, target: str) -> float:
    return min(TVMKernel(program, target).repeats(1, _REPEATS))


def _stream_bytes(info: TargetInfo) -> int:
    """Bytes to read: far more than the last-level cache, at most a quarter of the memory."""
    size = max(_LEAST_BYTES, _TIMES_L3 * info.l3_bytes)
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return size
    return min(size, memory // 4)


def _read_program(cores: int, rows: int, lanes: int) -> Program:
    """A program in which every core reads and adds up its own part of an array."""
    data = emit.buffer("data", (cores, rows, _STREAMS * lanes))
    out = emit.buffer("out", (cores, _STREAMS, lanes))

    def core(number: emit.Expr) -> emit.Stmt:
        sums = emit.registers(_STREAMS, lanes)

        def step(row: emit.Expr) -> emit.Stmt:
            values = [emit.load(data, [number, row, at * lanes], lanes) for at in range(_STREAMS)]
            pairs = zip(sums, values, strict=True)
            return emit.sequence([emit.assign(acc, emit.read(acc) + value) for acc, value in pairs])

        return accumulation_loop(number, sums, emit.loop("row", rows, step), out, lanes)

    function = emit.function([data, out], emit.parallel("core", cores, core))
    values = np.ones((cores, rows, _STREAMS * lanes), np.float32)
    return Program(function=function, inputs=[values], plain_loops=True)


def describe(text: str, *, measuring: bool) -> dict[str, Any]:
    """The description of a target's CPU, as JSON values.

    Raises:
        TargetError: The target is no CPU, or not this machine's if it shall be measured.
    """
    target = TVMTargets(NoOptions()).resolve(text)
    report: dict[str, Any] = {"target": json.loads(target)}
    if measuring:
        report["measured"] = _measure_this_cpu(target, target_info(target))
        target_info.cache_clear()
    report["features"] = sorted(used_features(tvm_target(target)))
    records = [*package_records_of(target), *plugin_records_of(target)]
    report["instructions"] = [record.name for record in records]
    report["kernels"] = describe_arithmetic(target)
    report["description"] = attrs.asdict(target_info(target))
    return report


def _measure_this_cpu(target: str, info: TargetInfo) -> dict[str, Any]:
    values = json.loads(target)
    if not is_this_cpu(target):
        raise TargetError(
            "only this machine's CPU can be measured, and the target names another one",
            hint="Run `chameleon cpu --measure` on the machine that runs the kernels.",
        )
    measured = measure(target, info)
    file = store_memory_rate(values["mcpu"], info.cores, measured.memory_rate)
    return {
        "peak GFLOP/s": round(measured.flops / 1e9, 1),
        "memory GB/s": round(measured.memory_bytes / 1e9, 1),
        "kept in": str(file),
    }
