"""Builds and times one kernel as Chameleon does: ``python -m chameleon_tvm._rivals.timing``."""

from __future__ import annotations

import os
import statistics
from typing import Any

import numpy as np
from chameleon_core.api import Registry
from chameleon_core.plugin_api import Task
from chameleon_system.api import AnswerStream, CoreWatch, read_requests, usable_cores

from chameleon_tvm._building.kernel import Program, TVMKernel
from chameleon_tvm._opaque import plain_arithmetic
from chameleon_tvm._operators.base import Operator, operator_of
from chameleon_tvm._quick_tvm import Schedule, Trace, tvm
from chameleon_tvm._spaces.sketch.packing import layout_free
from chameleon_tvm._spaces.sketch.schedule import finish_schedule

REPEATS, REPEAT_SECONDS = 9, 0.02

_BIG_CORES = 1
"""TVM's mode for using the fastest cores. If all cores are alike, it uses all of them."""


def pin_to_first_core() -> None:
    """Bind this thread to the first core; TVM pins its workers to the other cores.

    TVM's thread pool is started first, because starting it removes the binding.
    """
    threads = int(os.environ.get("TVM_NUM_THREADS", "1"))
    tvm.get_global_func("runtime.config_threadpool")(_BIG_CORES, threads)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {usable_cores()[0]})


def median_seconds(kernel: Any, cores: list[int]) -> float:
    """Time a kernel: the median of repeats that take ``REPEAT_SECONDS`` each."""
    kernel.time(1)
    once = kernel.time(1)
    number = max(1, int(REPEAT_SECONDS / once))
    threads = int(os.environ.get("TVM_NUM_THREADS", "1"))
    repeats = []
    with CoreWatch(cores[:threads]) as watch:
        for _ in range(REPEATS):
            watch.wait()
            repeats.append(kernel.time(number))
    return float(statistics.median(repeats))


def replay_trace(operator: Operator, trace: Any) -> Program:
    """The program of an operator's recorded trace, with packed inputs."""
    schedule = Schedule(layout_free(plain_arithmetic(operator.prim_func()), operator.constants))
    Trace.apply_json_to_schedule(trace, schedule)
    result = finish_schedule(schedule)
    arrays = operator.arrange(operator.inputs())
    names = [str(parameter.name) for parameter in operator.prim_func().params]
    inputs = result.pack_inputs(names, arrays)
    return Program(function=result.function, inputs=inputs, unpack=operator.logical)


def relative_error(kernel: Any, task: Task) -> float:
    """Largest |difference| from the reference, over the reference's largest magnitude."""
    operator = operator_of(task)
    expected = operator.reference(operator.inputs())
    return max(
        float(np.abs(got - expected_array).max() / np.abs(expected_array).max())
        for got, expected_array in zip(kernel.outputs(), expected, strict=True)
    )


def main() -> None:
    """Time the kernel that the parent process asks for, and send it the time."""
    answers, request = AnswerStream(), next(read_requests())
    task = Task(**request["task"])
    kernel_request = request["kernel"]
    cores = usable_cores()  # read before this thread is bound to a core
    pin_to_first_core()
    if "trace" in kernel_request:
        kernel: Any = TVMKernel(
            replay_trace(operator_of(task), kernel_request["trace"]), task.target
        )
    else:
        provider = Registry.default().create("spaces", kernel_request["space"])
        kernel = provider.builder(task, threads=request["threads"]).build(kernel_request["config"])
    # The kernel is timed first, because NumPy's threads for the reference would spin beside it.
    seconds = median_seconds(kernel, cores)
    answers.send(
        {
            "error": relative_error(kernel, task),
            "tolerance": operator_of(task).tolerance,
            "seconds": seconds,
        }
    )


if __name__ == "__main__":
    main()
