"""The corpus's networks of torch, computed through ``torch.compile(backend="chameleon")``.

`python benchmarks/torch_backend.py` compiles each network that is not held out in a process of its
own, compares the answers on new inputs with torch's, and times both in turns. `--held-out` takes
the held-out networks, `--only NAME ...` some, `--mode` is the backend's. `--libraries` is a folder
with torchvision, which only torchvision's networks see. The table says how many graphs a network
had, how many of them a network computes, the largest relative error, seconds of the first call, and
torch's own seconds over ours. The exit code is 1 if a network failed or gave a wrong answer.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import time
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

from corpus_plan import chosen, read_plan
from corpus_process import in_time, last_words

HERE = Path(__file__).parent
TOLERANCE = 1e-3
ROUNDS = 15
DEADLINE_SECONDS = 900.0


def main() -> int:
    """Measure what the command line names; prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plan", type=Path, default=HERE / "corpus.yaml")
    parser.add_argument("--held-out", action="store_true")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME")
    parser.add_argument("--mode", default="predicted")
    parser.add_argument("--libraries", type=Path)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(_measured(options.child, options.mode)))
        return 0
    cases = chosen(read_plan(options.plan), only=options.only, held_out=options.held_out)
    print("| network | graphs | by Chameleon | error | first call, s | torch / Chameleon |")
    print("|---|---|---|---|---|---|", flush=True)
    ratios, failed = [], 0
    for case in cases:
        if case.form != "torch":
            continue
        libraries = options.libraries if case.source == "torchvision" else None
        paths = [str(HERE), str(libraries or ""), os.environ.get("PYTHONPATH", "")]
        variables = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
        command = [sys.executable, __file__, "--child", case.network, "--mode", options.mode]
        ended = in_time(command, variables, DEADLINE_SECONDS)
        try:
            facts: dict[str, Any] = json.loads(ended.out.splitlines()[-1])
        except (ValueError, IndexError):
            failed += 1
            why = "it took too long" if ended.code is None else last_words(ended.err)
            print(f"| {case.name} | failed: {why} |", flush=True)
            continue
        failed += not facts["error"] <= TOLERANCE
        ratios.append(facts["ratio"])
        cells = [case.name, facts["graphs"], facts["ours"], f"{facts['error']:.1e}"]
        cells += [f"{facts['first']:.1f}", f"{facts['ratio']:.2f}"]
        print(f"| {' | '.join(map(str, cells))} |", flush=True)
    if ratios:
        print(f"\n{len(ratios)} networks, geometric mean {geometric_mean(ratios):.2f}")
        print(f"least {min(ratios):.2f}, {failed} failed or wrong")
    return 1 if failed else 0


def _measured(network: str, mode: str) -> dict[str, Any]:
    import torch  # noqa: PLC0415 - only a child needs it
    from chameleon_networks._backends import torch_graphs as backend  # noqa: PLC0415 - likewise

    module, _, function = network.partition(":")
    net, inputs = getattr(importlib.import_module(f"corpus_networks.{module}"), function)()
    graphs: list[Any] = []

    def counted(graph: Any, example_inputs: Any, **options: Any) -> Any:
        graphs.append(backend.chameleon(graph, example_inputs, **options))
        return graphs[-1]

    others = tuple(_like(value) for value in inputs)
    with torch.inference_mode():
        compiled = torch.compile(net, backend=counted, mode=mode)
        start = time.perf_counter()
        compiled(*inputs)
        first = time.perf_counter() - start
        error = _error(compiled(*others), net(*others))
        seconds: list[list[float]] = [[], []]
        for _ in range(ROUNDS):
            for side, spent in zip((compiled, net), seconds, strict=True):
                start = time.perf_counter()
                side(*others)
                spent.append(time.perf_counter() - start)
    ours = sum(getattr(graph, "computes", False) for graph in graphs)
    ratio = median(seconds[1]) / median(seconds[0])
    return {"graphs": len(graphs), "ours": ours, "error": error, "first": first, "ratio": ratio}


def _like(value: Any) -> Any:
    """Another input: other numbers of an example of fractions, the example's own of others."""
    import torch  # noqa: PLC0415 - only a child needs it

    return torch.randn_like(value) if value.is_floating_point() else value.clone()


def _error(answer: Any, expected: Any) -> float:
    """The largest difference of an output over its largest number, over all outputs."""
    import torch  # noqa: PLC0415 - only a child needs it
    from torch.utils._pytree import tree_leaves  # noqa: PLC0415 - likewise

    pairs = zip(tree_leaves(answer), tree_leaves(expected), strict=True)
    errors = [
        float((a.double() - b.double()).abs().max() / b.double().abs().max().clamp_min(1e-30))
        for a, b in pairs
        if isinstance(b, torch.Tensor) and b.numel()
    ]
    return max(errors, default=0.0)


if __name__ == "__main__":
    sys.exit(main())
