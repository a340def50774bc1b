"""Networks of one operator without tuning, against torch and onnxruntime.

    python benchmarks/single_operators.py                # every case but those kept aside
    python benchmarks/single_operators.py --aside        # those kept aside
    python benchmarks/single_operators.py --only cumsum --threads 1

Shapes, axes and sizes are drawn by a digest of the case's name: batch 1 to 4, 0.1 to 8 million
elements. A quarter of the cases, also drawn by digest, is kept aside: look at them last. Prints a
line of JSON for each case, the worst ratio last, then the geometric mean of the ratios; a ratio is
the faster rival's time by ours. Each case's results are compared with torch's.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import math
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from chameleon_core._errors import ChameleonError
from chameleon_networks._backends.onnx_networks import untuned
from chameleon_networks._frameworks.inference import onnx_bytes, onnx_session, torch_network
from chameleon_networks._graph.tvm_warnings import warnings_once
from chameleon_networks._importers.torch.lowering.importer import torch_graph
from chameleon_networks._importers.torch.programs import export_module
from chameleon_system._thread_limit import usable_threads
from torch.nn import functional

ROUNDS, TURN_SECONDS, PAUSE_SECONDS = 5, 0.06, 0.02
DRAWS = 2
"""Cases of each operator."""

Draw = np.random.Generator
Case = tuple[Callable[..., Any], list[Any]]


def main() -> None:
    """Time the cases of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--aside", action="store_true")
    parser.add_argument("--only", default="", help="part of the cases' names")
    parser.add_argument("--threads", type=int, default=usable_threads())
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = []
    for name in names(aside=options.aside):
        if options.only in name:
            rows.append({"case": name, **timed(*drawn(name), threads=options.threads)})
            print(json.dumps(rows[-1]), flush=True)
    print()
    rows.sort(key=lambda row: -row.get("ratio", 0.0))
    for row in rows:
        print(f"{row.get('ratio', 0.0):7.3f}  {json.dumps(row)}")
    ratios = [row["ratio"] for row in rows if "ratio" in row]
    print(json.dumps({"geometric_mean": round(statistics.geometric_mean(ratios), 3)}))


def names(*, aside: bool) -> Iterator[str]:
    """Names of the cases that are looked at, or of those kept aside."""
    for operator in OPERATORS:
        for number in range(DRAWS):
            name = f"{operator}/{number}"
            if (_digest(f"aside {name}") % 4 == 0) == aside:
                yield name


def drawn(name: str) -> Case:
    """The function and the inputs of a case."""
    return OPERATORS[name.split("/", maxsplit=1)[0]](np.random.default_rng(_digest(name)))


def _digest(word: str) -> int:
    return int.from_bytes(hashlib.sha256(word.encode()).digest()[:8], "big")


class _Network(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self._function = function

    def forward(self, *tensors: Any) -> Any:
        return self._function(*tensors)


def timed(function: Callable[..., Any], inputs: list[Any], threads: int) -> dict[str, Any]:
    """The milliseconds of a case for each of those that compute it, and the ratio."""
    shapes = [list(tensor.shape) for tensor in inputs]
    program = export_module(_Network(function).eval(), tuple(inputs), "case").in_shapes({})
    torch.set_num_threads(threads)
    arrays = [tensor.numpy() for tensor in inputs]
    try:
        with warnings_once():
            ours = untuned(torch_graph(program).module, threads)
    except ChameleonError as error:
        return {"shapes": shapes, "refused": str(error)}
    runs: dict[str, Callable[[], Any]] = {"ours": lambda: ours(*arrays)}
    eager = torch_network(program, compiled=False, threads=threads)
    runs["torch"] = lambda: eager(arrays)
    problem = _wrong(runs["ours"](), eager(arrays))
    with contextlib.suppress(Exception):  # onnxruntime and its exporter lack some operators
        session = onnx_session(onnx_bytes(program), threads=threads)
        session(arrays)
        runs["onnxruntime"] = lambda: session(arrays)
    times: dict[str, list[float]] = {key: [] for key in runs}
    for _ in range(ROUNDS):
        for key, run in runs.items():
            time.sleep(PAUSE_SECONDS)
            times[key].append(_turn(run))
    best = {key: min(values) for key, values in times.items()}
    ours.close()
    fastest = min(seconds for key, seconds in best.items() if key != "ours")
    return {
        "shapes": shapes,
        **{f"{key}_ms": round(1e3 * seconds, 3) for key, seconds in best.items()},
        "to_torch": round(best["torch"] / best["ours"], 3),
        "ratio": round(fastest / best["ours"], 3),
        **({"wrong": problem} if problem else {}),
    }


def _turn(run: Callable[[], Any]) -> float:
    """The median seconds of a call in one turn."""
    run()
    seconds = []
    end = time.perf_counter() + TURN_SECONDS
    while time.perf_counter() < end or len(seconds) < 2:
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def _wrong(got: Any, expected: list[Any]) -> str | None:
    outputs = got if isinstance(got, list) else [got]
    for number, (have, want) in enumerate(zip(outputs, expected, strict=True)):
        if not np.allclose(have, want, rtol=1e-3, atol=1e-4 * float(np.abs(want).max() or 1)):
            return f"output {number} differs by {np.abs(have - want).max():.3g}"
    return None


# -- cases ------------------------------------------------------------------------------------


def _shape(draw: Draw, rank: int, most: float = 8e6) -> list[int]:
    """A batch of 1 to 4, then axes that share 0.1 to some million elements unevenly."""
    batch = int(draw.integers(1, 5))
    elements = math.exp(draw.uniform(math.log(1e5), math.log(most))) / batch
    shares = draw.dirichlet([4.0] * (rank - 1))
    return [batch, *(max(2, round(elements ** float(share))) for share in shares)]


def _numbers(shape: list[int], draw: Draw) -> Any:
    return torch.from_numpy(draw.standard_normal(shape, np.float32))


def _along(function: Callable[[Any, int], Any], least: int = 2) -> Callable[[Draw], Case]:
    """An operator along any axis but the batch's."""

    def case(draw: Draw) -> Case:
        rank = int(draw.integers(least + 1, 6))
        axis = int(draw.integers(1, rank))
        return lambda x: function(x, axis), [_numbers(_shape(draw, rank), draw)]

    return case


def _spatial(
    function: Callable[[Any, int], Any], rank: int, most: float = 8e6
) -> Callable[[Draw], Case]:
    """An operator on channels and an image or a volume, of a window of 2 or 3."""

    def case(draw: Draw) -> Case:
        batch, channels = int(draw.integers(1, 5)), 8 * int(draw.integers(1, 17))
        pixels = math.exp(draw.uniform(math.log(1e5), math.log(most))) / batch / channels
        edge = max(6, round(pixels ** (1 / rank)))
        edges = [edge + int(draw.integers(0, 4)) for _ in range(rank)]
        window = int(draw.integers(2, 4))
        return lambda x: function(x, window), [_numbers([batch, channels, *edges], draw)]

    return case


def _group_norm(draw: Draw) -> Case:
    shape = _shape(draw, 4)
    groups = int(draw.integers(2, 9))
    shape[1] = groups * max(1, round(shape[1] / groups))
    scale, shift = (_numbers([shape[1]], draw) for _ in range(2))
    return lambda x: functional.group_norm(x, groups, scale, shift), [_numbers(shape, draw)]


def _instance_norm(draw: Draw) -> Case:
    return functional.instance_norm, [_numbers(_shape(draw, int(draw.integers(3, 6))), draw)]


def _layer_norm(draw: Draw) -> Case:
    shape = _shape(draw, 3)
    scale, shift = (_numbers(shape[-1:], draw) for _ in range(2))
    normal = shape[-1:]
    return lambda x: functional.layer_norm(x, normal, scale, shift), [_numbers(shape, draw)]


def _embedding(draw: Draw) -> Case:
    rows, width = int(draw.integers(1000, 30000)), 8 * int(draw.integers(4, 97))
    table = _numbers([rows, width], draw)
    places = draw.integers(0, rows, (int(draw.integers(1, 5)), int(draw.integers(64, 2048))))
    return lambda at: functional.embedding(at, table), [torch.from_numpy(places)]


def _gather(draw: Draw) -> Case:
    rank = int(draw.integers(2, 5))
    axis, shape = int(draw.integers(1, rank)), _shape(draw, rank)
    places = torch.from_numpy(draw.integers(0, shape[axis], shape))
    return lambda x, at: torch.gather(x, axis, at), [_numbers(shape, draw), places]


def _index_select(draw: Draw) -> Case:
    rank = int(draw.integers(2, 5))
    axis, shape = int(draw.integers(1, rank)), _shape(draw, rank)
    places = torch.from_numpy(draw.integers(0, shape[axis], shape[axis]))
    return lambda x, at: torch.index_select(x, axis, at), [_numbers(shape, draw), places]


def _pool(dimensions: int, kind: str) -> Callable[[Any, int], Any]:
    pool = getattr(functional, f"{kind}_pool{dimensions}d")
    return lambda x, window: pool(x, window, stride=2)


OPERATORS: dict[str, Callable[[Draw], Case]] = {
    "softmax": _along(torch.softmax),
    "log_softmax": _along(torch.log_softmax),
    "mean": _along(torch.mean),
    "sum": _along(torch.sum),
    "prod": _along(torch.prod),
    "amax": _along(torch.amax),
    "var": _along(torch.var),
    "std": _along(torch.std),
    "logsumexp": _along(torch.logsumexp),
    "norm": _along(lambda x, axis: torch.linalg.vector_norm(x, dim=axis)),
    "normalize": _along(lambda x, axis: functional.normalize(x, dim=axis)),
    "cumsum": _along(torch.cumsum),
    "cumprod": _along(torch.cumprod),
    "cummax": _along(lambda x, axis: torch.cummax(x, axis)[0]),
    "logcumsumexp": _along(torch.logcumsumexp),
    "argmax": _along(torch.argmax),
    "argmin": _along(torch.argmin),
    "max_and_place": _along(lambda x, axis: tuple(torch.max(x, axis))),
    "group_norm": _group_norm,
    "instance_norm": _instance_norm,
    "layer_norm": _layer_norm,
    "max_pool3d": _spatial(_pool(3, "max"), 3),
    "avg_pool3d": _spatial(_pool(3, "avg"), 3),
    "max_pool2d": _spatial(_pool(2, "max"), 2),
    "avg_pool2d": _spatial(_pool(2, "avg"), 2),
    "adaptive_pool3d": _spatial(functional.adaptive_avg_pool3d, 3),
    "embedding": _embedding,
    "gather": _gather,
    "index_select": _index_select,
    "sort": _along(lambda x, axis: torch.sort(x, axis)[0]),
    "topk": _along(lambda x, axis: tuple(torch.topk(x, min(5, x.shape[axis]), axis))),
}


if __name__ == "__main__":
    main()
