"""Makes an artifact of a program: compiled and linked for its target, inputs beside it."""

from __future__ import annotations

from pathlib import Path

from chameleon_core.task import Task

from chameleon_tvm.building.kernel import Program
from chameleon_tvm.building.lowering import lower_function
from chameleon_tvm.building.remote.artifact import (
    Recipe,
    output_arguments,
    store_input,
    write_recipe,
)
from chameleon_tvm.building.remote.cuda_host import compiling_for
from chameleon_tvm.device.linking import linking_for
from chameleon_tvm.device.targets import tvm_target


def export_program(program: Program, target: str, folder: Path, *, task: Task | None) -> None:
    """Write everything that a device needs to run a program.

    Args:
        program: the function and its packed inputs.
        target: the canonical target.
        folder: empty; nothing written there refers to this machine.
        task: whose operator undoes the layouts of the outputs; None where they have none.
    """
    resolved = tvm_target(target)
    with compiling_for(resolved):
        compiled = lower_function(program.function, resolved, plain_loops=program.plain_loops)
        library = linking_for(resolved).export(compiled, folder)
    inputs = [store_input(folder, array) for array in program.inputs]
    outputs = output_arguments(program.output_buffers)
    recipe = Recipe(
        target=target,
        library=library,
        arguments=(*inputs, *outputs),
        task=None if task is None else task.to_json(),
    )
    write_recipe(folder, recipe)
