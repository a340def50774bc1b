"""Kernels that crash, hang, sleep or compute wrong numbers, to test runners and servers.

The kernels are compiled functions that call the C library. So in a test, a real server fails
because of a real kernel, and nothing is simulated on the client.
"""

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from chameleon_core._errors import InvalidConfigurationError
from chameleon_core._task import Task
from chameleon_core.plugin_api import Arrays, Builder, Choice, DesignSpace, Kernel, SpaceProvider
from chameleon_tvm._building.kernel import Program, TVMKernel
from chameleon_tvm._building.remote.smoke_test import ArtifactFiles
from chameleon_tvm._quick_tvm import te, tirx
from faults import HANGING

_LENGTH = 32
_SEGMENTATION_FAULT = 11
_ERROR_OUTPUT = 2


class Behaviour(StrEnum):
    """The behaviour of a kernel when it runs."""

    NONE = "none"
    WRONG = "wrong"
    SLEEPS = "sleeps"
    CRASHES = "crashes"
    HANGS = "hangs"
    BUILD_RAISES = "build_raises"
    INVALID = "invalid"


BEHAVIOURS = tuple(Behaviour)
"""The behaviours in the order of the knob's indices."""


@attrs.frozen(kw_only=True)
class BehaviourOptions:
    """Options of the test space whose kernels crash, hang, sleep or compute wrong numbers.

    Attributes:
        behaviours: The behaviours that the space offers, in the order of the first knob's indices.
        variants: Number of configurations of each behaviour.
        seconds: Duration of a run of a sleeping kernel, in seconds.
    """

    behaviours: tuple[str, ...] = tuple(behaviour.value for behaviour in Behaviour)
    variants: int = 1 << 16
    seconds: float = 0.2


class BehaviourSpace(SpaceProvider):
    """A test space of two knobs: the misbehaviour of the kernel, and a number.

    The number only makes several configurations of one behaviour different.

    Args:
        options: Options of the space.
    """

    def __init__(self, options: BehaviourOptions) -> None:
        self._options = options

    def design_space(self, task: Task) -> DesignSpace:
        del task
        behaviours, numbers = self._options.behaviours, tuple(range(self._options.variants))
        knobs = [
            Choice(name="behaviour", options=behaviours),
            Choice(name="number", options=numbers),
        ]
        return DesignSpace(knobs)

    def builder(self, task: Task, *, threads: int) -> Builder:
        del threads
        return BehaviourBuilder(task, self._options)


class BehaviourBuilder(Builder):
    """Builds kernels that behave as their configuration says.

    Each behaviour is compiled only once for export. All configurations with this behaviour get
    copies of the files.

    Args:
        task: The task whose target the kernels are built for.
        options: Options of the space.
    """

    def __init__(self, task: Task, options: BehaviourOptions) -> None:
        self._target = task.target
        self._options = options
        self._built: dict[Behaviour, ArtifactFiles] = {}

    def build(self, config: Sequence[int]) -> Kernel:
        return TVMKernel(self._program(config), self._target)

    def export(self, config: Sequence[int], artifact: Path) -> None:
        program = self._program(config)
        behaviour = self._behaviour(config)
        if behaviour not in self._built:
            self._built[behaviour] = ArtifactFiles.of(program, self._target)
        self._built[behaviour].write(artifact)

    def reference(self) -> tuple[Arrays, float]:
        return [_numbers() + 1.0], 1e-6

    def _behaviour(self, config: Sequence[int]) -> Behaviour:
        return Behaviour(self._options.behaviours[config[0]])

    def _program(self, config: Sequence[int]) -> Program:
        behaviour = self._behaviour(config)
        if behaviour is Behaviour.INVALID:
            raise InvalidConfigurationError("this configuration names no program")
        if behaviour is Behaviour.BUILD_RAISES:
            raise RuntimeError("the build raised")
        return Program(function=_function(behaviour, self._options.seconds), inputs=[_numbers()])


def config(behaviour: Behaviour, number: int = 0) -> tuple[int, int]:
    """The configuration of the test space for a behaviour."""
    return BEHAVIOURS.index(behaviour), number


def _numbers() -> np.ndarray:
    return np.arange(_LENGTH, dtype=np.float32)


def _function(behaviour: Behaviour, seconds: float) -> tirx.PrimFunc:
    """A function that adds one to every number; it misbehaves before the first number."""
    source = te.placeholder((_LENGTH,), "float32", name="given")
    added = 2.0 if behaviour is Behaviour.WRONG else 1.0
    printed = tirx.call_extern("int32", "write", _ERROR_OUTPUT, HANGING, len(HANGING))
    calls = {
        Behaviour.SLEEPS: ("usleep", int(seconds * 1e6)),
        Behaviour.CRASHES: ("raise", _SEGMENTATION_FAULT),
        Behaviour.HANGS: ("sleep", 3600 * printed),
    }
    if behaviour not in calls:
        result = te.compute((_LENGTH,), lambda i: source[i] + added, name="made")
        return te.create_prim_func([source, result])
    name, argument = calls[behaviour]

    def value(i: tirx.Var) -> Any:
        # The C library's functions return 0 here, which is added so that the call stays.
        done = tirx.call_extern("int32", name, argument)
        return source[i] + added + tirx.if_then_else(i == 0, done, 0).astype("float32")

    result = te.compute((_LENGTH,), value, name="made")
    return te.create_prim_func([source, result])
