"""Everything that is asked of a GPU: table 5's layers against cuDNN and MetaSchedule, the ablation.

`python benchmarks/gpu.py --json gpu.json` tunes each of the eight layers (float32) with SA, AE,
SA+AS, AE+AS, our default and TVM's MetaSchedule, all for the same `--seconds` on every one of
`--seeds` (a suite of `chameleon bench`, `suites/gpu.yaml`). Then all winners of a layer and
cuDNN in both of its layouts (through PyTorch, TF32 off, its fastest algorithm) are timed against
each other on one GPU, in turns, by its events, with a flushed cache. It writes one JSON object:
per layer every winner's time, and its speed against cuDNN's and MetaSchedule's; the share of layers
on which each pipeline is at least as fast; after what share of SA's time each pipeline had SA's
final quality; what is missing and why; machine, versions, commit. What was stopped goes on where
it was. MetaSchedule's own timings, by which it searches, are with hot caches, as always.
With the defaults it takes 8 layers x 6 tuners x 3 seeds x 5 minutes, that is 12 hours.

`--target native` has this machine's CPU stand in for the GPU, and oneDNN for cuDNN: to see that
it works, not for figures.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
from chameleon_bench._cells.execute import Execution, results
from chameleon_bench._cells.running import CellResult
from chameleon_bench._pages.suite_report import environment, report_of
from chameleon_bench._suites.load import load_suite
from chameleon_bench._suites.suite import Cell, Suite
from chameleon_cli._logs import configure
from chameleon_cli._signals import signals
from chameleon_core._errors import ChameleonError
from chameleon_core._loop.end.comparison import finalists
from chameleon_core._loop.interruption import Interruption, RunInterrupted
from chameleon_core._loop.start.tasks import TaskSource
from chameleon_core._pipeline.load import from_dict
from chameleon_core._task import Task
from chameleon_core.api import RecordStore
from chameleon_core.plugin_api import Contender, Runner, StageRef
from chameleon_system._cores import usable_cores
from chameleon_system._files import write_atomic
from gpu_figures import figures

SUITE = Path(__file__).parent / "suites" / "gpu.yaml"
RIVAL = "metaschedule"
VENDORS = {
    "cuda": ("cudnn", "chameleon_runners._cuda.cudnn:CudnnBaseline"),
    "cpu": ("onednn", "chameleon_runners._cuda.cudnn:StandInBaseline"),
}
"""By TVM's kind of device, the vendor's library and the baseline that calls it."""
RECORDED = "chameleon_tvm._rivals.recorded:RecordedSchedule"


@attrs.frozen(kw_only=True)
class Side:
    """A contender of a layer's final comparison, and whose it is.

    Attributes:
        owner: name of a pipeline, of the rival, or of the vendor's library.
        seed: of the run that found it; None for the vendor.
        contender: what is built.
    """

    owner: str
    seed: int | None
    contender: Contender


def loaded(options: argparse.Namespace) -> Suite:
    """The suite with the command line's changes, reduced to the layers asked for."""
    seconds = f"{options.seconds:g}s"
    changes = [
        f"target={json.dumps(options.target)}",
        f"seeds={options.seeds}",
        f"budget.wall_time={seconds}",
        f"output={json.dumps(str(options.out.absolute()))}",
    ]
    if device_kind(options.target) == "cpu":
        changes += ["runner.kind=cpu", "runner.devices=[0]", f"runner.threads={_cores()}"]
    suite = load_suite(options.suite, changes)
    for what, known, wanted in (
        ("layer", suite.tasks, options.layers),
        ("pipeline", suite.pipelines, options.pipelines),
    ):
        unknown = set(wanted) - set(known)
        if unknown:
            raise SystemExit(
                f"there is no {what} {', '.join(sorted(unknown))}; there are {', '.join(known)}"
            )
    kept = [
        pairing
        for pairing in suite.pairings
        if (not options.layers or pairing.task in options.layers)
        and (not options.pipelines or pairing.pipeline in options.pipelines)
    ]
    return attrs.evolve(suite, pairings=tuple(kept))


def device_kind(target: str) -> str:
    """TVM's kind of device for what a user writes as a target."""
    return "cpu" if target.split(maxsplit=1)[0] in {"native", "llvm"} else "cuda"


def require_gpu() -> None:
    """End with a sentence where there is no GPU, before anything takes minutes."""
    from chameleon_runners._cuda.monitor import count_gpus  # noqa: PLC0415 - only for GPUs

    count, problem = count_gpus()
    if not count:
        raise SystemExit(
            f"there is no GPU to measure on: {problem}. `--target native` has the CPU stand in."
        )


def tune(suite: Suite) -> None:
    """Run every cell that has not ended."""
    interruption = Interruption()
    total = len(list(suite.cells()))

    def ended(cell: Cell, failure: str | None) -> None:
        said = f"failed: {failure}" if failure else "done"
        print(f"{len(results(suite))} of {total}: {cell.name} {said}", file=sys.stderr, flush=True)

    with signals(interruption):
        Execution(interruption=interruption, ended=ended).run(suite)


# -- the final comparison ---------------------------------------------------------------------


def sides_of(cells: Mapping[Cell, CellResult], vendor: str, task: Task) -> list[Side]:
    """Everyone who takes part in a layer's comparison."""
    from chameleon_core._plugins.factory import load_factory  # noqa: PLC0415

    name, factory = VENDORS[vendor]
    baseline = load_factory(factory)(None)
    stage = StageRef(factory=factory)
    sides = [
        Side(
            owner=name,
            seed=None,
            contender=Contender(name=name, variant=variant, stage=stage),
        )
        for variant in (baseline.variants(task) if baseline.supports(task) else ())
    ]
    for cell, result in cells.items():
        if result.failure is None:
            sides += [
                Side(owner=cell.pipeline, seed=cell.seed, contender=contender)
                for contender in winners(cell, result)
            ]
    return sides


def winners(cell: Cell, result: CellResult) -> Sequence[Contender]:
    """The fastest configurations of a run, or the rival's schedule."""
    if cell.rival is not None:
        found = [v for v in result.environment.values() if isinstance(v, dict) and v.get("trace")]
        return [
            Contender(
                name=cell.pipeline,
                variant="recorded",
                stage=StageRef(factory=RECORDED, options={"trace": one["trace"]}),
            )
            for one in found
        ]
    space = StageRef.of(from_dict(cell.document).space)
    with RecordStore.of_run(cell.folder) as store:
        return finalists([m for row in store.tasks() for m in store.measurements(row.id)], space)


def compare(suite: Suite, layer: str, ended: Mapping[Cell, CellResult], kind: str) -> Any:
    """Time a layer's contenders against each other, unless that was done before."""
    cell = next(one for one in suite.cells() if one.task == layer)
    pipeline = from_dict(cell.document)
    source = TaskSource(pipeline)
    (task,) = source.tasks(source.target())
    sides = sides_of({c: r for c, r in ended.items() if c.task == layer}, kind, task)
    described = [attrs.asdict(side) for side in sides]
    asked = json.dumps([described, task.to_json(), pipeline.runner.to_json()], sort_keys=True)
    identity = hashlib.sha256(asked.encode()).hexdigest()
    path = suite.output / "comparisons" / f"{layer}.json"
    if path.exists():
        known = json.loads(path.read_text(encoding="utf-8"))
        if known["identity"] == identity:
            return known
    print(f"comparing {len(sides)} kernels of {layer}", file=sys.stderr, flush=True)
    runner: Runner = pipeline.runner.create()
    with runner:
        measured = runner.compare(task, [side.contender for side in sides]) if sides else []
        facts = runner.describe()
    value = {
        "identity": identity,
        "flop": task.flop,
        "runner": facts,
        "sides": [
            {
                "owner": side.owner,
                "seed": side.seed,
                "variant": side.contender.variant,
                "seconds": one.cost if one.ok else None,
                "max_relative_error": one.max_relative_error,
                "failure": None if one.failure is None else f"{one.failure.value}: {one.message}",
            }
            for side, one in zip(sides, measured, strict=True)
        ],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, json.dumps(value))
    return value


# -- all of it --------------------------------------------------------------------------------


def report(suite: Suite, kind: str) -> dict[str, Any]:
    """Compare what has not been compared, and put everything in one object."""
    ended = results(suite)
    layers = {layer: compare(suite, layer, ended, kind) for layer in suite.tasks}
    runners = [one.pop("runner") for one in layers.values()]
    searched = report_of(suite, ended)
    failed = {cell.name: result.failure for cell, result in ended.items() if result.failure}
    return {
        "target": suite.pairings[0].document["target"],
        "stands_in": kind == "cpu",
        "vendor": VENDORS[kind][0],
        "seconds_each": suite.pairings[0].document["budget"]["wall_time"],
        "seeds": list(suite.seeds),
        "cells": searched["cells"],
        **figures(layers, searched, vendor=VENDORS[kind][0], rival=RIVAL),
        "failed_searches": failed,
        "machine": {**environment(suite), "runner": runners[0] if runners else None},
        "searches": searched["results"],
        "comparisons": layers,
    }


def main() -> None:
    """Parse the arguments; tune, compare, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", default="cuda", help="the GPU here by default; or native")
    parser.add_argument("--seconds", type=float, default=300.0, help="wall-clock of each search")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--layers", type=_names, default=(), help="with commas; all by default")
    parser.add_argument("--pipelines", type=_names, default=(), help="with commas; all by default")
    parser.add_argument("--suite", type=Path, default=SUITE)
    parser.add_argument(
        "--out", type=Path, default=Path("bench/gpu"), help="folder of the searches"
    )
    parser.add_argument("--json", type=Path, help="where the object goes; stdout by default")
    options = parser.parse_args()
    configure()
    kind = device_kind(options.target)
    if kind == "cuda":
        require_gpu()
    try:
        suite = loaded(options)
        tune(suite)
        value = report(suite, kind)
    except RunInterrupted:
        raise SystemExit("interrupted; give the same command again to go on") from None
    except ChameleonError as error:
        raise SystemExit(f"{error}\n{error.hint or ''}".strip()) from error
    text = json.dumps(value, indent=1)
    if options.json is None:
        print(text)
    else:
        options.json.write_text(text + "\n", encoding="utf-8")
    for line in value["goals"]:
        print(f"{line['goal']}: {line['verdict']}", file=sys.stderr)
    for line in value["missing"]:
        print(f"missing: {line}", file=sys.stderr)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name for name in text.split(",") if name)


def _cores() -> int:
    return len(usable_cores())


if __name__ == "__main__":
    main()
