"""Exports the winners of a run for users of TVM: a MetaSchedule database, or TVMScript."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from chameleon_core.plugin_api import ConfigError, Delivery, SpaceProvider
from chameleon_tvm.api import (
    Exported,
    Program,
    SketchBuilder,
    SketchOptions,
    SketchPlan,
    TVMBuilder,
    applied,
    identifiers,
    layout_free,
    plain_arithmetic,
    tirx,
    tvm,
    tvm_builder,
    tvm_target,
    unoccupied,
)
from tvm.s_tir import meta_schedule as ms

from chameleon_networks._compile.default_schedules import TASK_ATTRIBUTE
from chameleon_networks._compile.insert_kernels import insert_kernels
from chameleon_networks._compile.kernels import OperatorKernel
from chameleon_networks._compile.prepared_networks import prepared_network
from chameleon_networks._graph.fusion_groups import FusionGroup, candidate_specs
from chameleon_networks._importers.imported_network import ImportedNetwork


def with_tuned_functions(
    module: Any, fusions: Sequence[FusionGroup], builders: Mapping[str, TVMBuilder], target: str
) -> Any:
    """Call the tuned functions themselves, as MetaSchedule's records need equal functions."""

    def workload(fusion: FusionGroup) -> OperatorKernel | None:
        keys = [spec.task("chain", target).key for spec in candidate_specs(fusion, target)]
        builder = next((builders[key] for key in keys if key in builders), None)
        if builder is None:
            return None
        operator = builder.operator
        inputs = operator.inputs()
        for index, constant in zip(
            sorted(operator.constants), fusion.constants.arrays, strict=True
        ):
            inputs[index] = np.ascontiguousarray(constant)
        return OperatorKernel(
            task=builder.task.name,
            function=layout_free(operator.prim_func(), operator.constants),
            arguments=tuple(
                array if index in operator.constants else None
                for index, array in enumerate(operator.arrange(inputs))
            ),
            plain_loops=False,
        )

    return insert_kernels(module, fusions, workload, reshape=True)


def tuned_functions(module: Any) -> Iterator[tuple[str, tirx.PrimFunc]]:
    """Yield the functions that ``with_tuned_functions`` made, each with the name of its task."""
    for _, function in module.functions_items():
        if isinstance(function, tirx.PrimFunc) and TASK_ATTRIBUTE in (function.attrs or {}):
            yield str(function.attrs[TASK_ATTRIBUTE]), function


DATABASE = ("database_workload.json", "database_tuning_record.json")
"""The files of a MetaSchedule ``JSONDatabase``."""


NETWORK_MODULE = "network.json"
"""The file of the network, which ``tvm.ir.save_json`` writes. The network calls the workloads of
the database."""


def write_metaschedule(
    winners: Sequence[Delivery.Winner],
    space: SpaceProvider,
    options: SketchOptions,
    folder: Path,
    *,
    network: ImportedNetwork | None = None,
) -> Exported:
    """Write a MetaSchedule ``JSONDatabase`` of each operator, with and without packed constants."""
    builders = {winner.task.name: tvm_builder(space, winner) for winner in winners}
    foreign = [name for name, builder in builders.items() if not isinstance(builder, SketchBuilder)]
    if foreign:
        raise ConfigError(
            f"templates are no MetaSchedule traces: {', '.join(foreign)} cannot be exported so",
            hint="Tune with `space: sketch`, leave them out with --task, or export the scheduled "
            "functions with `--to tvmscript`.",
        )
    files = [*DATABASE, NETWORK_MODULE] if network is not None else list(DATABASE)
    unoccupied(folder, files)
    database = ms.database.JSONDatabase(work_dir=str(folder))
    records = {}
    for winner in winners:
        operator = builders[winner.task.name].operator
        schedule = applied(SketchPlan(winner.task, operator, options), winner.config)
        record = records[winner.task.name] = _Record(winner=winner, trace=schedule.trace)
        function = plain_arithmetic(operator.prim_func())
        for constants in {frozenset(), operator.constants}:
            record.commit(database, layout_free(function, constants))
    if network is not None:
        by_key = {winner.task.key: builders[winner.task.name] for winner in winners}
        module = with_tuned_functions(*prepared_network(network), by_key, winners[0].task.target)
        for name, function in tuned_functions(module):
            records[name].commit(database, function)
        (folder / NETWORK_MODULE).write_text(tvm.ir.save_json(module), encoding="utf-8")
    return Exported(
        files=tuple(folder / name for name in files),
        tasks=tuple(builders),
        notes=_notes(options, builders.values()),
    )


@attrs.frozen(kw_only=True, eq=False)
class _Record:
    """A winner with its trace, which is recorded for one or more workloads."""

    winner: Delivery.Winner
    trace: Any

    def commit(self, database: Any, function: tirx.PrimFunc) -> None:
        """Record the trace as the best schedule of a function."""
        module = ms.tune_context._normalize_mod(function)  # noqa: SLF001 - as MetaSchedule does
        database.commit_tuning_record(
            ms.database.TuningRecord(
                self.trace,
                database.commit_workload(module),
                run_secs=[self.winner.seconds],
                target=tvm_target(self.winner.task.target),
                args_info=ms.arg_info.ArgInfo.from_entry_func(module, remove_preproc=True),
            )
        )


def _notes(options: SketchOptions, builders: Any) -> tuple[str, ...]:
    notes = []
    if options.rewrite_sums:
        notes.append(
            "TVM does not keep sums in registers as this run did, so that its kernels may be "
            "slower; tune with `space: {name: sketch, rewrite_sums: false}` for TVM's own."
        )
    if options.rewrite_layout and any(builder.operator.constants for builder in builders):
        notes.append(
            "Constant inputs are packed in every call, unless Relax's SplitLayoutRewritePreproc "
            "and constant folding follow; `rewrite_layout: false` tunes without packing."
        )
    return tuple(notes)


def write_tvmscript(
    winners: Sequence[Delivery.Winner], space: SpaceProvider, folder: Path
) -> Exported:
    """Write the scheduled function of each task as TVMScript, with comments on its parameters."""
    names = [f"{stem}.py" for stem in identifiers([winner.task.name for winner in winners])]
    unoccupied(folder, names)
    files = []
    for name, winner in zip(names, winners, strict=True):
        builder = tvm_builder(space, winner)
        program = builder.program(winner.config)
        text = plain_arithmetic(program.function).with_attr("global_symbol", "main").script()
        # TVM writes its own imports as comments.
        text = text.replace("# from tvm", "from tvm")
        file = folder / name
        lines = [*_header(winner, program, builder.operator.constants), text, ""]
        file.write_text("\n".join(lines), encoding="utf-8")
        files.append(file)
    return Exported(files=tuple(files), tasks=tuple(winner.task.name for winner in winners))


def _header(winner: Delivery.Winner, program: Program, constants: Collection[int]) -> list[str]:
    """Comments that describe a function and its parameters."""
    task = winner.task
    took = "not measured" if winner.seconds is None else f"{winner.seconds:.3e} s"
    lines = [
        f"# Operator {task.name} ({task.operator}), configuration {list(winner.config)},",
        f"# {took} on {task.target}.",
    ]
    if task.operator != "primfunc":  # the arguments of a primfunc are the whole function
        lines += [f"# {name}: {value}" for name, value in task.arguments.items()]
    for number, parameter in enumerate(program.function.params):
        role = "input" if number < len(program.inputs) else "output"
        if number in constants:
            role = "constant input, packed as the function reads it"
        lines.append(f"# Parameter {parameter.name}: {role}.")
    # Line breaks in texts of the run folder would end the comment, and the rest would be Python
    # code.
    return [" ".join(line.split()) for line in lines]
