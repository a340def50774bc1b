"""What every instruction must do: a check made from its meaning alone."""

from __future__ import annotations

import json
from typing import Any

from chameleon_core.plugins import InstructionRecord, NoOptions
from numpy.typing import NDArray

from chameleon_tvm.building.lowering import lower_function
from chameleon_tvm.device.cpus.description import is_this_cpu
from chameleon_tvm.device.cpus.features import architecture_of, target_features
from chameleon_tvm.device.targets import TVMTargets, tvm_target
from chameleon_tvm.instructions.base import Instruction
from chameleon_tvm.instructions.choosing import instruction_of
from chameleon_tvm.instructions.emission import require_permissions
from chameleon_tvm.quick_tvm import tvm
from chameleon_tvm.testing.instruction_kernels import (
    Operands,
    Trial,
    require_same,
    trials_of,
)


def check_instruction(record: InstructionRecord, target: str = "native") -> bool:
    """Check what a plugin registers: that the record is true, and as ``check_meaning`` does.

    Args:
        record: of an instruction of a CPU.
        target: a CPU that has it, as a user writes it; it may be another machine's.

    Returns:
        Whether it was run, too.

    Raises:
        AssertionError: with what is wrong, as a sentence.
        PluginError: it cannot be imported or made.
    """
    made = instruction_of(record)
    for what in ("name", "summary", "architecture"):
        told, said = getattr(record, what), getattr(made, what)
        assert told == said, (
            f"instruction '{record.name}': the record's {what} is {told!r}, its class's {said!r}"
        )
    told, said = sorted(record.features), sorted(made.features)
    assert told == said, (
        f"instruction '{record.name}': the record's features are {told}, its class's {said}"
    )
    return check_meaning(made, target)


def check_meaning(instruction: Instruction, target: str = "native") -> bool:
    """Check an instruction: the code of a function that uses it, and its results.

    The function has to contain one of the instruction's mnemonics. Where the target is this
    machine's CPU, it has to compute what the meaning says, on random and on extreme operands.

    Args:
        instruction: of a CPU.
        target: a CPU that has it, as a user writes it; it may be another machine's.

    Returns:
        Whether it was run, too.

    Raises:
        AssertionError: with what is wrong, as a sentence.
        TargetError: the system refuses what the instruction needs.
    """
    where = f"instruction '{instruction.name}'"
    resolved = TVMTargets(NoOptions()).resolve(target)
    built_for = tvm_target(resolved)
    trials = trials_of(instruction, target_features(built_for))
    same = instruction.architecture in {"", architecture_of(built_for)}
    assert trials and same, f"{where}: the target {target} lacks it"
    runs = is_this_cpu(built_for, json.loads(resolved))
    for trial in trials:
        about = f"{where}, {trial}"
        function = trial.function()
        code = lower_function(function, built_for, plain_loops=True)
        text = assembly(code)
        found = any(mnemonic in text for mnemonic in instruction.mnemonics)
        assert found, f"{about}: none of {', '.join(instruction.mnemonics)} in its code"
        if runs:
            require_permissions(function)
            _check_results(trial, code.jit(), about)
    return runs


def assembly(code: tvm.runtime.Executable) -> str:
    """The assembly text of what was compiled for a CPU."""
    return str(code.mod.inspect_source("s"))


def require_meaning(trial: Trial, operands: Operands, sums: NDArray[Any], *, where: str) -> None:
    """Require that what a trial's function computed is what the instruction means.

    Args:
        trial: of the instruction.
        operands: what it was called with.
        sums: its last argument after the call.
        where: said first in the sentence of a failure.

    Raises:
        AssertionError: it is not.
    """
    expected, terms = trial.expected(operands)
    got = sums.reshape(expected.shape)
    require_same(trial.instruction, got, expected, terms, where=where)


def _check_results(trial: Trial, module: tvm.runtime.Module, where: str) -> None:
    operands = trial.operands()
    arguments = [tvm.runtime.tensor(array) for array in trial.arguments(operands)]
    module["main"](*arguments)
    require_meaning(trial, operands, arguments[-1].numpy(), where=where)
