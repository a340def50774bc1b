"""How much faster a network is tuned on eight devices when several of its tasks are tuned at once.

`python benchmarks/tasks_at_once.py` starts a tracker and servers of TVM's RPC on this machine, as
`rpc_fleet.py` does: their devices take 200 ms a candidate by sleeping. It tunes a network of four
tasks on them, with the stages of the default preset, one task at a time and as many at once as
`tasks_at_once: auto` gives. Prints JSON.
"""

from __future__ import annotations

import argparse
import importlib
import json
import platform
import tempfile
import time
from pathlib import Path
from typing import Any

import attrs
from chameleon_cli import logs
from chameleon_core.loop.run import run_pipeline
from chameleon_core.pipeline.load import from_dict
from chameleon_core.plugins import PluginRecord, Registry, hookimpl
from chameleon_core.stages import Frontend
from chameleon_core.task import Task
from chameleon_runners.rpc.supervision import Serving, ServingPlan
from chameleon_tvm.building.remote.testing import Behaviour, BehaviourOptions
from rpc_fleet import OTHERS, POLICY, SPACE, runs_of_a_candidate

PACKAGES = ("core", "tvm", "explorers", "cost_models", "samplers", "runners")


@attrs.frozen(kw_only=True)
class NetworkOptions:
    """Options of the network.

    Attributes:
        tasks: how many there are in it.
    """

    tasks: int


class SleepingNetwork(Frontend):
    """Tasks that differ in their names alone."""

    def __init__(self, options: NetworkOptions) -> None:
        self._options = options

    def tasks(self, target: str) -> list[Task]:
        return [
            Task(
                name=f"sleep{number}",
                operator="behaviour",
                arguments={"number": number},
                target=target,
                flop=1.0,
            )
            for number in range(self._options.tasks)
        ]


class Plugins:
    """The network, and the space of kernels that sleep."""

    @hookimpl
    def chameleon_frontends(self) -> list[PluginRecord]:
        """The network."""
        return [_record("sleeping", NetworkOptions, f"{__name__}:SleepingNetwork")]

    @hookimpl
    def chameleon_spaces(self) -> list[PluginRecord]:
        """The space."""
        return [_record("behaviours", BehaviourOptions, SPACE)]


def _record(name: str, options: type, factory: str) -> PluginRecord:
    return PluginRecord(name=name, summary=name, options=options, factory=factory)


class Moments:
    """Notes when measurements came, and what was spent on each task."""

    def __init__(self) -> None:
        self.moments: list[float] = []
        self.failed = 0
        self.spent: dict[str, dict[str, float]] = {}

    @hookimpl
    def chameleon_measured(self, event: Any) -> None:
        """See ``EventHooks``."""
        self.moments.append(time.perf_counter())
        self.failed += event.failure is not None

    @hookimpl
    def chameleon_batch_measured(self, event: Any) -> None:
        """See ``EventHooks``."""
        self.spent[event.task.name] = attrs.asdict(event.spent)


def tuned(given: argparse.Namespace, address: str, at_once: int | str) -> dict[str, Any]:
    """Tune the network; connections and the first measurements are not counted."""
    hooks = [importlib.import_module(f"chameleon_{name}.hooks") for name in PACKAGES]
    registry = Registry.from_plugins([Plugins(), *hooks])
    moments = Moments()
    with tempfile.TemporaryDirectory() as folder:
        document = {
            "model": {"sleeping": {"tasks": given.tasks}},
            "target": "native",
            "space": {
                "name": "behaviours",
                "behaviours": [Behaviour.SLEEPS.value],
                "seconds": given.seconds / runs_of_a_candidate(),
            },
            "runner": {
                "name": "rpc",
                "tracker": address,
                "key": "sleeping",
                "workers": 1,
                **POLICY,
                **OTHERS,
            },
            "scheduler": "round-robin",
            "baselines": [],
            "budget": {
                "measurements": given.each,
                "batch_size": given.batch_size,
                "tasks_at_once": at_once,
            },
            "output": str(Path(folder) / "run"),
        }
        run_pipeline(from_dict(document, registry=registry), listeners=[moments])
    # The first batch of each task waits for connections and for builders that import TVM.
    skipped = given.tasks * (given.batch_size or 2 * given.servers)
    counted = moments.moments[skipped:]
    elapsed = counted[-1] - moments.moments[skipped - 1]
    searched = sum(spent["search"] + spent["model"] for spent in moments.spent.values())
    return {
        "tasks_at_once": at_once,
        "measurements": len(moments.moments),
        "failed": moments.failed,
        "seconds": elapsed,
        "measurements_per_second": len(counted) / elapsed,
        "device_share": len(counted) * given.seconds / (given.servers * elapsed),
        "share_of_all_seconds_searched": searched
        / sum(sum(s[k] for k in ("search", "model", "measure")) for s in moments.spent.values()),
    }


def main() -> None:
    """Parse the arguments, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--servers", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=0.2, help="device time of a candidate")
    parser.add_argument("--tasks", type=int, default=4)
    parser.add_argument("--each", type=int, default=96, help="measurements per task")
    parser.add_argument("--batch-size", type=int, help="what suits the runner by default")
    given = parser.parse_args()
    logs.configure()
    with Serving(ServingPlan(servers=given.servers, key="sleeping", threads=1)) as serving:
        found = [tuned(given, str(serving.address), at_once) for at_once in (1, "auto")]
    rates = [one["measurements_per_second"] for one in found]
    result = {
        "python": platform.python_version(),
        "servers": given.servers,
        "tasks": given.tasks,
        "runs": found,
        "ratio": rates[1] / rates[0],
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
