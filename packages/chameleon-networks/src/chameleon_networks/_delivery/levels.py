"""Compiles a delivered network for further levels of CPUs, such as ``x86-64-v3``.

The folder of a level has a library with kernels for that level, as records of other runs or first
guesses choose them. The weights of all levels are in one file.
"""

from __future__ import annotations

import json
import shutil
import statistics
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path

import attrs
import structlog
from chameleon_core.api import words
from chameleon_core.plugin_api import (
    ChameleonError,
    ConfigError,
    Delivery,
    NoOptions,
    TargetError,
    Task,
    fall_back,
)
from chameleon_tvm.api import TVMTargets, first_line, host_features, tvm_target, used_features

from chameleon_networks._artifact.load import Manifest
from chameleon_networks._artifact.writer import (
    LEVELS_CODE,
    MODULE,
    add_loader_file,
    read_manifest,
    write_manifest,
)
from chameleon_networks._compile.kernels import Kernels
from chameleon_networks._compile.prepared_networks import prepared_network
from chameleon_networks._delivery.delivery_steps import DeliverySteps, GraphWithKernels
from chameleon_networks._delivery.disassembly import foreign_instructions
from chameleon_networks._delivery.kernel_choice import with_shared_packings
from chameleon_networks._delivery.other_kernels import (
    OtherKernels,
    sharing_weights,
    write_other_kernels,
)
from chameleon_networks._evaluation.processes import delivered_process
from chameleon_networks._graph.fusion_groups import FusionGroup, candidate_specs
from chameleon_networks._importers.imported_network import ImportedNetwork

log = structlog.get_logger()

Configurations = dict[str, tuple[int, ...]]
"""The knob indices of tasks, by ``Task.key``."""

COMPILING = "compiling for levels"
"""Name of the step of a delivery."""

TUNED, MEASURED, NEVER_RUN = "tuned", "measured", "never run"
"""How far a level was checked on the machine that delivered it."""


def target_of_level(target: str, level: str) -> str:
    """A target with the CPU of a level, in canonical form.

    Args:
        target: The canonical target of the network.
        level: LLVM's name of a CPU.

    Raises:
        ConfigError: The level is no CPU of the target's architecture.
    """
    options = {key: value for key, value in json.loads(target).items() if key != "mattr"}
    if level in {"native", options.get("mcpu")}:
        raise ConfigError(
            f"the level {level!r} is the target itself, or no name of a CPU",
            hint="Leave it out of 'levels'.",
        )
    try:
        return TVMTargets(NoOptions()).resolve(json.dumps({**options, "mcpu": level}))
    except TargetError as error:
        raise ConfigError(
            f"the level {level!r} is no CPU that runs code for the target: {error}",
            hint="Levels are LLVM's names of CPUs of the target's architecture, such as x86-64-v3.",
        ) from error


def shared_orders(networks: Sequence[ImportedNetwork], delivery: Delivery) -> Configurations:
    """Configurations with which all buckets of a level read packed weights in the same order."""
    chosen: Configurations = {}
    for name in networks[0].options.levels:
        target = target_of_level(delivery.target, name)
        winners: dict[str, Delivery.Winner] = {}
        for network in networks:
            for fusion in prepared_network(network)[1]:
                task = _task_of(fusion, name, target)
                if task.key in winners:
                    continue
                guesses = delivery.space.design_space(task).first_guesses.tolist()
                for config in [*delivery.recorded(task), *map(tuple, guesses)][:1]:
                    winners[task.key] = Delivery.Winner(task=task, config=config)
        shared = with_shared_packings([*winners.values()], delivery.space)
        chosen |= {winner.task.key: winner.config for winner in shared}
    return chosen


def add_levels(
    steps: DeliverySteps, folder: Path, preferred: Configurations | None = None
) -> str | None:
    """Add libraries for further levels to a network's folder; say how they were checked.

    The result is None if the pipeline names no levels.

    Args:
        steps: The steps of the network's delivery.
        folder: The network's folder.
        preferred: Configurations to try first, by the keys of tasks.
    """
    names = steps.settled.network.options.levels
    if not names:
        return None
    targets = {name: target_of_level(steps.target, name) for name in names}
    manifest = read_manifest(folder)
    rows: list[Manifest] = [{"name": json.loads(steps.target).get("mcpu", TUNED), "checked": TUNED}]
    sentences = []
    for name in sorted(names, key=lambda name: -len(_features(targets[name]))):
        try:
            with steps.seconds.during(COMPILING):
                row, sentence = _added(steps, folder, name, targets[name], preferred or {})
            rows.append({"name": name, **row})
        except Exception as error:  # noqa: BLE001 - the network itself is verified
            problem = str(error)
            if not isinstance(error, ChameleonError):
                fall_back("level_not_compiled", error, level=name)
                problem = first_line(error)
            shutil.rmtree(folder / name, ignore_errors=True)
            log.warning("level_not_delivered", level=name, problem=problem)
            sentence = f"it is not delivered, since {problem}"
        sentences.append(f"{name}: {sentence}")
    if len(rows) > 1:
        add_loader_file(folder, LEVELS_CODE)
        write_manifest(folder, {**manifest, "levels": rows})
    return f"further levels: {'; '.join(sentences)}"


def keep_common_levels(folders: Collection[Path]) -> dict[str, str]:
    """Remove levels that a bucket of a network lacks from the others; why, by their names."""
    rows = [read_manifest(folder).get("levels", ())[1:] for folder in folders]
    names = [frozenset(row["name"] for row in own) for own in rows]
    lacking = frozenset.union(*names) - frozenset.intersection(*names)
    for folder in folders:
        remove_levels(folder, lacking)
    return dict.fromkeys(sorted(lacking), "one of them has no such library")


def remove_levels(folder: Path, names: Collection[str]) -> None:
    """Remove levels from the folder of a network or of a bucket."""
    manifest = read_manifest(folder)
    rows = [row for row in manifest.get("levels", ()) if row["name"] not in names]
    if len(rows) == len(manifest.get("levels", ())):
        return
    for name in names:
        shutil.rmtree(folder / name, ignore_errors=True)
    if len(rows) == 1:
        del manifest["levels"]
        write_manifest(folder, manifest)
    else:
        write_manifest(folder, {**manifest, "levels": rows})


def _features(target: str) -> frozenset[str]:
    return used_features(tvm_target(target))


def _added(
    steps: DeliverySteps, folder: Path, name: str, target: str, preferred: Configurations
) -> tuple[Manifest, str]:
    """Compile a level with kernels of other runs, or else of first guesses alone, and check it.

    Raises:
        ChameleonError: Its outputs are wrong, or it has instructions that the level lacks.
    """
    graph = steps.compiled[folder]
    chosen, recorded = level_kernels(graph, target, steps.recorded, preferred)
    if recorded:
        try:
            row, sentence = _add(steps, folder, name, target, chosen)
        except ChameleonError as error:
            log.warning("records_not_used", level=name, problem=str(error))
            chosen, _ = level_kernels(graph, target)
        else:
            said = f"{recorded} of its kernels were measured in other runs, {sentence}"
            return {**row, "recorded": recorded}, said
    return _add(steps, folder, name, target, chosen)


def _add(
    steps: DeliverySteps, folder: Path, name: str, target: str, chosen: OtherKernels
) -> tuple[Manifest, str]:
    """Compile a level, and check it; the row of the manifest, and a sentence.

    Raises:
        ChameleonError: Its outputs are wrong, or it has instructions that the level lacks.
    """
    graph, inner = steps.compiled[folder], folder / name
    write_other_kernels(inner, graph, chosen, target, steps.threads)
    if lacking := sorted(_features(target) - host_features()):
        sentence = f"{NEVER_RUN}, since this CPU lacks {', '.join(lacking)}"
        row: Manifest = {"checked": NEVER_RUN, "seconds": None, "disassembled": True}
        try:
            foreign = foreign_instructions(inner / MODULE, target)
        except ChameleonError as error:
            return {**row, "disassembled": False}, f"{sentence}; {error}"
        if foreign:
            raise ChameleonError(f"its CPUs lack {words.listing(sorted(foreign))}, which it runs")
        return row, f"{sentence}; all its instructions are the level's"
    with delivered_process(name, inner, threads=steps.threads) as process:
        facts = {"target": target, "repackings": chosen.repackings}
        problem = steps.problem_of(process, steps.search(chosen.kernels, **facts))
        if problem is not None:
            raise ChameleonError(f"its outputs are wrong: {problem}")
        seconds = statistics.median(steps.inference_seconds(process))
    return {"checked": MEASURED, "seconds": seconds}, f"verified, {words.in_seconds(seconds)}"


def level_kernels(
    graph: GraphWithKernels,
    target: str,
    recorded: Callable[[Task], Sequence[tuple[int, ...]]] = lambda _: (),
    preferred: Configurations | None = None,
) -> tuple[OtherKernels, int]:
    """Kernels for another target, and how many of them other runs have measured.

    The others are first guesses. Tasks without any keep default schedules.

    Args:
        graph: The network.
        target: The other target.
        recorded: A function that returns the fastest configurations of other runs.
        preferred: Configurations to try first, by the keys of tasks.

    Raises:
        ChameleonError: No configuration of a task can be built.
    """
    own = graph.kernels
    winners: dict[str, Delivery.Winner] = {}
    known: dict[str, Sequence[tuple[int, ...]]] = {}
    for fusion in graph.fusions:
        task = _task_of(fusion, own.task_of(fusion).name, target)
        if task.key in known:
            continue
        known[task.key] = recorded(task)
        first = [preferred[task.key]] if preferred and task.key in preferred else []
        if guesses := [*first, *known[task.key], *own.first_guesses(task)]:
            config, *others = guesses
            winners[task.key] = Delivery.Winner(task=task, config=config, guesses=tuple(others))
    chosen = sharing_weights(graph, Kernels(winners, own.space, target), _candidates)
    measured = [w for key, w in chosen.kernels.winners.items() if w.config in known[key]]
    return chosen, len(measured)


def _task_of(fusion: FusionGroup, name: str, target: str) -> Task:
    """The task of a fusion group for a level; its records are those with cold weights."""
    weights = sum(array.nbytes for array in fusion.constants.arrays)
    task = next(candidate_specs(fusion, target)).task(name, target)
    return attrs.evolve(task, cold_bytes=weights)


def _candidates(winner: Delivery.Winner) -> Iterator[Delivery.Winner]:
    """The guesses of a task, best first."""
    guesses = (winner.config, *winner.guesses)
    for number, config in enumerate(guesses):
        rest = guesses[number + 1 :]
        yield Delivery.Winner(task=winner.task, config=config, guesses=rest)
