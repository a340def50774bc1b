"""How long it takes from a network's name to its tasks, each network in a process of its own.

    python benchmarks/extraction.py
    python benchmarks/extraction.py resnet50 bert_base

Prints one line of JSON per network: seconds of importing TVM and torch, of building and exporting
the network in torch, of TVM's import of that, of preparing the graph (batch normalisation folded,
constants computed, one layout), of naming its tasks and of all design spaces; the network's own
part is what a user waits for beyond the imports, `total` is everything.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from chameleon_networks.compile.prepared_networks import prepared_network
from chameleon_networks.importers.builtin.records import NETWORKS


def main() -> None:
    """Time the networks of the command line, or all large ones."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("networks", nargs="*", choices=[[], *NETWORKS])
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    networks = options.networks or [name for name in NETWORKS if not name.endswith("_small")]
    if options.here:
        print(json.dumps(seconds_of(networks[0])), flush=True)
        return
    for network in networks:
        subprocess.run([sys.executable, __file__, network, "--here"], check=True)


def seconds_of(network: str) -> dict[str, object]:
    """Seconds of each step for one network, in this process."""
    steps: dict[str, float] = {}
    started = time.perf_counter()

    @contextmanager
    def step(name: str) -> Iterator[None]:
        begun = time.perf_counter()
        yield
        steps[name] = round(time.perf_counter() - begun, 2)

    with step("importing"):
        make = _imported()
    frontend, space, target = make(network)
    imported = frontend.network
    with step("torch"):
        _ = imported.program
    with step("tvm_import"):
        _ = imported.imported
    with step("preparing"):
        _ = prepared_network(imported)
    with step("naming"):
        tasks = frontend.tasks(target)
    with step("spaces"):
        for task in tasks:
            space.design_space(task)
    total = time.perf_counter() - started
    own = total - steps["importing"]
    return {
        "network": network,
        "tasks": len(tasks),
        "operators": sum(task.weight for task in tasks),
        **steps,
        "own": round(own, 2),
        "total": round(total, 2),
    }


def _imported() -> Callable[[str], tuple[object, object, str]]:
    """What makes a frontend, a space and a target, once everything slow is imported."""
    import torch  # noqa: PLC0415, F401 - timed
    from chameleon_core.plugins import NoOptions  # noqa: PLC0415
    from chameleon_networks.delivery.bucketed import work_on  # noqa: PLC0415
    from chameleon_networks.graph.relaxed import relax  # noqa: PLC0415, F401
    from chameleon_networks.importers.options import BuiltinOptions  # noqa: PLC0415
    from chameleon_tvm.device.targets import TVMTargets  # noqa: PLC0415
    from chameleon_tvm.spaces.auto import AutoSpace  # noqa: PLC0415
    from chameleon_tvm.spaces.options import AutoOptions  # noqa: PLC0415

    target = TVMTargets(NoOptions()).resolve("native")

    def made(network: str) -> tuple[object, object, str]:
        return work_on(BuiltinOptions(network=network)), AutoSpace(AutoOptions()), target

    return made


if __name__ == "__main__":
    main()
