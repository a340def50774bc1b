"""What scheduling a fleet costs, and what is left of candidates that crash, hang, lie and vanish.

`python benchmarks/fleet.py` schedules fleets of 1 to 256 simulated devices (the dispatcher of
real ones, on a simulated clock) and counts the processor time it takes; then it measures 500
candidates, a fifth of which misbehave, in worker processes with devices that are Python. Needs no
compiler.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
from chameleon_core.measurement import FailureKind, Measurement
from chameleon_core.stages import MeasureJob, StageRef
from chameleon_core.task import Task
from chameleon_runners.fleet.options import FleetOptions
from chameleon_runners.fleet.runner import FleetRunner
from chameleon_runners.fleet.simulated import SimulatedFleetRunner
from chameleon_runners.testing.devices import fault_device_ref
from chameleon_runners.testing.faults import FAULTS, Fault, config

TASK = Task(name="fleet", operator="fault", arguments={}, target="none", flop=1.0)
SPACE = StageRef(factory="chameleon_runners.testing.faults:FaultSpace")

KINDS = {
    Fault.SEGFAULTS: FailureKind.CRASH,
    Fault.HANGS: FailureKind.RUN_TIMEOUT,
    Fault.WRONG: FailureKind.WRONG_OUTPUT,
    Fault.DISCONNECTS: FailureKind.CRASH,
    Fault.NONE: None,
}
"""What misbehaving candidates are to be recorded as; a kernel that always takes the connection
with it is a crash."""


def schedule(devices: int, *, per_device: int, build_seconds: float, run_seconds: float) -> Any:
    """Measure on simulated devices; the candidates' times vary, so that devices fall out of step.

    Args:
        devices: how many there are.
        per_device: candidates for each, in one batch; a thousand at least.
        build_seconds: what a build takes, on as many builders as keep the devices busy.
        run_seconds: what loading, checking and timing take on average.
    """

    def outcome(configuration: tuple[int, ...], _device: str) -> Measurement:
        share = 0.5 + random.Random(configuration[0]).random()  # noqa: S311 - no secret
        return Measurement(
            config=configuration,
            seconds=(1e-3 * share,) * 3,
            build_seconds=build_seconds,
            run_seconds=run_seconds * share,
        )

    count = max(1000, per_device * devices)
    workers = max(2, round(2 * devices * build_seconds / run_seconds))
    options = FleetOptions(workers=workers, run_timeout=1e3, run_floor=1e3, build_timeout=1e3)
    names = [f"device-{number}" for number in range(devices)]
    job = MeasureJob(task=TASK, space=SPACE, configs=[(number,) for number in range(count)])
    with SimulatedFleetRunner(options, outcome, lambda: names) as runner:
        before = time.process_time()
        measured = sum(measurement.ok for measurement in runner.measure(job))
        spent = time.process_time() - before
        assert measured == count
        busy, took = runner.pool.busy_seconds, runner.now()
    return {
        "devices": devices,
        "candidates": count,
        "cpu_seconds_per_candidate": spent / count,
        "share_of_device_time": spent / busy,
        "share_of_wall_clock": spent / took,
        "devices_busy": busy / (devices * took),
    }


def misbehave(count: int, *, seed: int, rate: float, devices: int, run_timeout: float) -> Any:
    """Measure candidates of which some crash, hang, are wrong, or take the connection with them.

    Args:
        count: how many candidates.
        seed: decides which of them misbehave.
        rate: share of each of the four kinds.
        devices: how many devices there are.
        run_timeout: in seconds.
    """
    drawn = random.Random(seed)  # noqa: S311 - no secret
    weights = [1.0 - 4 * rate if kind is Fault.NONE else rate for kind in KINDS]
    configs = [config(drawn.choices([*KINDS], weights)[0], number) for number in range(count)]
    options = FleetOptions(
        run_timeout=run_timeout, run_floor=run_timeout, probe_after=0.2, repeat_seconds=0.001
    )
    own = psutil.Process()
    with tempfile.TemporaryDirectory() as folder:
        device_refs = [
            fault_device_ref(f"device-{n}", Path(folder), seed=n) for n in range(devices)
        ]
        with FleetRunner(options, lambda: device_refs, kind="fake") as runner:
            job = MeasureJob(task=TASK, space=SPACE, configs=[config(Fault.NONE, 4000)])
            list(runner.measure(job))
            before = _footprint(own)
            started, spent = time.perf_counter(), time.process_time()
            job = MeasureJob(task=TASK, space=SPACE, configs=configs)
            found = list(runner.measure(job))
            seconds = time.perf_counter() - started
            spent = time.process_time() - spent
            after = _footprint(own)
        left = len(own.children(recursive=True))
    results = Counter(measurement.config for measurement in found)
    misjudged = [m.config for m in found if m.failure != KINDS[FAULTS[m.config[0]]]]
    return {
        "candidates": count,
        "devices": devices,
        "faults": dict(Counter(FAULTS[c[0]].value for c in configs)),
        "seconds": seconds,
        "cpu_seconds_per_candidate": spent / count,
        "exactly_one_result_each": results == Counter(configs),
        "misjudged": len(misjudged),
        "recorded": dict(Counter(m.failure.value if m.failure else "ok" for m in found)),
        "before": before,
        "after": after,
        "processes_left_when_closed": left,
    }


def _footprint(process: psutil.Process) -> dict[str, int]:
    return {
        "processes": len(process.children(recursive=True)),
        "descriptors": process.num_fds(),
        "resident_bytes": process.memory_info().rss,
    }


def main() -> None:
    """Parse the arguments, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--devices", type=int, nargs="*", default=[1, 4, 16, 64, 256])
    parser.add_argument("--per-device", type=int, default=16)
    parser.add_argument("--build-seconds", type=float, default=0.2)
    parser.add_argument("--run-seconds", type=float, default=0.5)
    parser.add_argument("--candidates", type=int, default=500)
    parser.add_argument("--rate", type=float, default=0.05)
    parser.add_argument("--fault-devices", type=int, default=4)
    parser.add_argument("--run-timeout", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    arguments = parser.parse_args()
    numbers = {
        "scheduling": [
            schedule(
                devices,
                per_device=arguments.per_device,
                build_seconds=arguments.build_seconds,
                run_seconds=arguments.run_seconds,
            )
            for devices in arguments.devices
        ],
        "faults": misbehave(
            arguments.candidates,
            seed=arguments.seed,
            rate=arguments.rate,
            devices=arguments.fault_devices,
            run_timeout=arguments.run_timeout,
        )
        if arguments.candidates
        else None,
    }
    text = json.dumps(numbers, indent=2)
    print(text)
    if arguments.json is not None:
        arguments.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
