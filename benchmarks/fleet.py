"""What it costs to schedule the devices of a fleet.

`python benchmarks/fleet.py` schedules fleets of 1 to 256 simulated devices (the dispatcher of
real ones, on a simulated clock) and counts the processor time it takes. Needs no compiler.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from pathlib import Path
from typing import Any

from chameleon_core._measurement import Measurement
from chameleon_core._task import Task
from chameleon_core.plugin_api import MeasureJob, StageRef
from chameleon_runners._fleet.options import FleetOptions

sys.path.append(str(Path(__file__).parents[1] / "tests" / "support"))

from simulated_fleet import SimulatedFleetRunner

TASK = Task(name="fleet", operator="fault", arguments={}, target="none", flop=1.0)
SPACE = StageRef(factory="faults:FaultSpace")


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


def main() -> None:
    """Parse the arguments, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--devices", type=int, nargs="*", default=[1, 4, 16, 64, 256])
    parser.add_argument("--per-device", type=int, default=16)
    parser.add_argument("--build-seconds", type=float, default=0.2)
    parser.add_argument("--run-seconds", type=float, default=0.5)
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    arguments = parser.parse_args()
    numbers = [
        schedule(
            devices,
            per_device=arguments.per_device,
            build_seconds=arguments.build_seconds,
            run_seconds=arguments.run_seconds,
        )
        for devices in arguments.devices
    ]
    text = json.dumps(numbers, indent=2)
    print(text)
    if arguments.json is not None:
        arguments.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
