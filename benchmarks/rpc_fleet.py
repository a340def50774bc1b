"""How much faster eight remote devices measure than one, and what killing their servers costs.

`python benchmarks/rpc_fleet.py` starts a tracker and servers of TVM's RPC on this machine. Their
devices take 200 ms a candidate by sleeping: the kernels are compiled functions that call
`usleep`, so a candidate is uploaded, loaded, checked and timed as any other. The builder keeps
what it compiled and copies it, since two cores cannot compile for eight devices.

`--chaos SECONDS` measures for that long while random servers are killed (SIGKILL, their sessions
with them) and started again, and counts what was lost and how long nothing came. Prints JSON.
"""

from __future__ import annotations

import argparse
import itertools
import json
import platform
import random
import statistics
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any, Self

from chameleon_cli import _logs as logs
from chameleon_core._measurement import Measurement
from chameleon_core._plugins.registry import Registry
from chameleon_core._task import Task
from chameleon_core.plugin_api import Arrays, Kernel, MeasureJob, StageRef
from chameleon_runners._rpc.options import RpcOptions
from chameleon_runners._rpc.runner import RpcRunner
from chameleon_runners._rpc.supervision import RpcServerOptions, RpcServers
from chameleon_runners._timing import TimingPolicy, time_kernel

# Worker processes get the path of this process.
sys.path.append(str(Path(__file__).parents[1] / "tests" / "support"))
SPACE = "behaviours:BehaviourSpace"
SLEEPS = 2
"""Index of the sleeping kernel in that space's first knob."""

POLICY = {"min_repeats": 1, "max_repeats": 1, "repeat_seconds": 1e-4}
OTHERS = {"spread": 0.01, "slow_factor": 2.5}


class CountingKernel(Kernel):
    """Counts the runs that a candidate makes under a policy."""

    def __init__(self) -> None:
        self.runs = 0

    def outputs(self) -> Arrays:
        self.runs += 1
        return []

    def time(self, number: int, *, cold_bytes: int = 0) -> float:
        del cold_bytes
        self.runs += number + 1
        return 1.0


def runs_of_a_candidate() -> int:
    """Runs of a kernel in its check and its timing."""
    kernel = CountingKernel()
    kernel.outputs()
    time_kernel(kernel, TimingPolicy(**POLICY, **OTHERS), float("inf"))
    return kernel.runs


class Fleet:
    """A runner on servers of this machine.

    Args:
        servers: how many.
        seconds: device time of a candidate.
        more: further options of the runner.
    """

    def __init__(self, servers: int, seconds: float, **more: Any) -> None:
        self.serving = RpcServers(RpcServerOptions(servers=servers, key="sleeping", threads=1))
        self._space = StageRef(factory=SPACE, options={"seconds": seconds / runs_of_a_candidate()})
        target = Registry.default().create("targets", "tvm").resolve("native")
        self._task = Task(name="sleep", operator="behaviour", arguments={}, target=target, flop=1.0)
        self._more = more
        self._next = 0

    def __enter__(self) -> Self:
        self.serving.__enter__()
        options = {"workers": 1, **POLICY, **OTHERS, **self._more}
        self.runner = RpcRunner(
            RpcOptions(tracker=str(self.serving.address), key="sleeping", **options)
        )
        self.runner.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.runner.close()
        self.serving.close()

    def measure(self, count: int) -> list[tuple[float, Measurement]]:
        """Measure so many new candidates; each with the moment when it came."""
        configs = [(SLEEPS, self._next + number) for number in range(count)]
        self._next += count
        job = MeasureJob(task=self._task, space=self._space, configs=configs)
        return [(time.perf_counter(), one) for one in self.runner.measure(job)]


def throughput(servers: int, seconds: float, each: int) -> dict[str, Any]:
    """Candidates a second on so many servers, connections and first builds not counted."""
    with Fleet(servers, seconds) as fleet:
        fleet.measure(4 * servers)
        began = time.perf_counter()
        came = fleet.measure(each * servers)
        elapsed = came[-1][0] - began
    failed = Counter(str(m.failure) for _, m in came if not m.ok)
    return {
        "servers": servers,
        "candidates": len(came),
        "failed": dict(failed),
        "seconds": elapsed,
        "candidates_per_second": len(came) / elapsed,
        "device_share": len(came) * seconds / (servers * elapsed),
    }


def chaos(servers: int, seconds: float, duration: float, seed: int) -> dict[str, Any]:
    """Measure while servers are killed; count what is lost and how long nothing came."""
    generator = random.Random(seed)  # noqa: S311 - picks victims
    timeout = 5.0
    wanted, results, moments = 0, [], []
    kills = 0
    with Fleet(servers, seconds, run_timeout=timeout, run_floor=timeout) as fleet:
        fleet.measure(2 * servers)
        done = threading.Event()
        moments.append(time.perf_counter())

        def measure() -> None:
            nonlocal wanted
            began = time.perf_counter()
            while time.perf_counter() - began < duration:
                wanted += 8 * servers
                for when, one in fleet.measure(8 * servers):
                    moments.append(when)
                    results.append(one)
            done.set()

        measuring = threading.Thread(target=measure)
        measuring.start()
        # Servers are tended and killed from this thread, which lives as long as they do.
        next_kill = time.perf_counter() + 1.0
        while not done.wait(0.1):
            fleet.serving.supervise()
            if time.perf_counter() > next_kill:
                generator.choice(fleet.serving.servers).kill()
                kills += 1
                next_kill = time.perf_counter() + generator.uniform(1.0, 5.0)
        measuring.join()
    gaps = [later - earlier for earlier, later in itertools.pairwise(moments)]
    return {
        "servers": servers,
        "duration": moments[-1] - moments[0],
        "kills": kills,
        "run_timeout": timeout,
        "candidates": wanted,
        "measurements": len(results),
        "distinct": len({m.config for m in results}),
        "failed": dict(Counter(str(m.failure) for m in results if not m.ok)),
        "messages": sorted({m.message[:300] for m in results if not m.ok})[:10],
        "longest_gap": max(gaps),
        "median_gap": statistics.median(gaps),
        "candidates_per_second": len(results) / (moments[-1] - moments[0]),
    }


def main() -> None:
    """Parse the arguments, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--servers", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=0.2, help="device time of a candidate")
    parser.add_argument("--each", type=int, default=24, help="candidates per server")
    parser.add_argument("--chaos", type=float, default=0.0, metavar="SECONDS")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    logs.configure()
    result: dict[str, Any] = {"python": platform.python_version()}
    if given.chaos > 0:
        result["chaos"] = chaos(given.servers, given.seconds, given.chaos, given.seed)
    else:
        one = throughput(1, given.seconds, given.each)
        many = throughput(given.servers, given.seconds, given.each)
        ratio = many["candidates_per_second"] / one["candidates_per_second"]
        result |= {"one": one, "many": many, "ratio": ratio}
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
