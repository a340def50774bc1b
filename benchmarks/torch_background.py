"""Latency of requests while ``torch.compile(backend="chameleon", mode="background")`` tunes.

`python benchmarks/torch_background.py images:resnet18 --libraries FOLDER` sends requests to a
network of `benchmarks/corpus_networks` with pauses as long as a request. First torch's own code
answers alone, then whatever is fastest with tuning beside it, then the tuned network. A line gives
the median and the 99th percentile of each in milliseconds, the ratio of the first two 99th
percentiles, and the seconds until the first network and the tuned one took over.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

REQUESTS = 300
DEADLINE_SECONDS = 600.0


def main() -> None:
    """Measure the networks of the command line; prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("networks", nargs="+", metavar="MODULE:FUNCTION")
    parser.add_argument("--seconds", type=float, default=60.0, help="of tuning")
    parser.add_argument("--libraries", type=Path, help="a folder with torchvision")
    options = parser.parse_args()
    sys.path += [] if options.libraries is None else [str(options.libraries)]
    print(
        "| network | eager | beside tuning | p99 ratio | first after, s | tuned after, s | tuned |"
    )
    print("|---|---|---|---|---|---|---|", flush=True)
    for network in options.networks:
        print(f"| {' | '.join(_measured(network, options.seconds))} |", flush=True)


def _measured(network: str, budget: float) -> list[str]:
    import torch  # noqa: PLC0415 - the help needs none
    from chameleon_networks._backends import torch_graphs as backend  # noqa: PLC0415 - likewise
    from chameleon_networks._backends.graph_options import BACKGROUND  # noqa: PLC0415 - likewise

    module, _, function = network.partition(":")
    net, inputs = getattr(importlib.import_module(f"corpus_networks.{module}"), function)()
    graphs: list[backend.CompiledGraph] = []

    def counted(graph: torch.fx.GraphModule, examples: list[torch.Tensor]) -> backend.Graph:
        options = {"mode": BACKGROUND, "seconds": budget}
        compiled = backend.chameleon(graph, examples, options=options)
        assert isinstance(compiled, backend.CompiledGraph)
        graphs.append(compiled)
        return compiled

    with torch.inference_mode():
        # Traced, and without the backend's network: the same path as beside the tuning.
        alone = torch.compile(net, backend="eager")
        _latencies(lambda: alone(*inputs), lambda done: done < REQUESTS // 10)
        eager = _latencies(lambda: alone(*inputs), lambda done: done < REQUESTS)
        compiled = torch.compile(net, backend=counted)
        compiled(*inputs)
        start = time.perf_counter()

        first = DEADLINE_SECONDS

        def waits(_: int) -> bool:
            nonlocal first
            now = time.perf_counter() - start
            if all(graph.computes for graph in graphs):
                first = min(first, now)
            return now < DEADLINE_SECONDS and not all(graph.settled for graph in graphs)

        beside = _latencies(lambda: compiled(*inputs), waits)
        after = time.perf_counter() - start
        # The last request loaded the tuned network, verified it and timed it.
        beside = beside[:-1]
        tuned = _latencies(lambda: compiled(*inputs), lambda done: done < REQUESTS)
    ratio = np.percentile(beside, 99) / np.percentile(eager, 99)
    seconds = (f"{first:.0f}", f"{after:.0f}")
    return [network, *map(_words, (eager, beside)), f"{ratio:.2f}", *seconds, _words(tuned)]


def _latencies(request: Callable[[], object], more: Callable[[int], bool]) -> list[float]:
    """Seconds of each request, with pauses as long as a request."""
    seconds: list[float] = []
    while more(len(seconds)):
        start = time.perf_counter()
        request()
        seconds.append(time.perf_counter() - start)
        time.sleep(seconds[-1])
    return seconds


def _words(seconds: list[float]) -> str:
    """Median and 99th percentile in milliseconds."""
    middle, high = np.percentile(seconds, [50, 99])
    return f"{1e3 * middle:.2f} / {1e3 * high:.2f}"


if __name__ == "__main__":
    main()
