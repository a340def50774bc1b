"""Operators delivered as folders."""

import importlib.util
from pathlib import Path

import attrs
import numpy as np
import pytest
from chameleon_core.plugin_api import Arrays, Delivery, NoOptions
from chameleon_networks._export.operators import deliver_operator
from chameleon_tvm._device.targets import TVMTargets
from chameleon_tvm._operators.base import Operator, operator_of
from chameleon_tvm._spaces.auto import AutoSpace
from chameleon_tvm._spaces.options import AutoOptions

TARGET = TVMTargets(NoOptions()).resolve("native")
THREADS = 2


@attrs.frozen(kw_only=True, eq=False)
class DeliveredOperator:
    """An operator in a folder, with weights of one's own packed.

    Attributes:
        winner: what it was made of.
        folder: where it is.
        operator: the same operator.
        inputs: logical ones, with other weights than those that it was measured with.
    """

    winner: Delivery.Winner
    folder: Path
    operator: Operator
    inputs: Arrays

    @property
    def activations(self):
        """What the kernel is called with, as it reads it."""
        arranged = self.operator.arrange(self.inputs)
        constants = self.operator.constants
        return [array for number, array in enumerate(arranged) if number not in constants]

    def pack(self):
        """Pack the weights with the folder's own file."""
        spec = importlib.util.spec_from_file_location("pack", self.folder / "pack.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        constants = [self.inputs[number] for number in sorted(self.operator.constants)]
        module.pack_weights(*constants).tofile(self.folder / "weights.bin")

    def error(self, output):
        """The largest difference from the reference over the largest of its numbers."""
        [result] = self.operator.logical([output])
        [wanted] = self.operator.reference(self.inputs)
        return float(np.abs(result.astype(np.float64) - wanted).max() / np.abs(wanted).max())


def configuration(space, task, wanted):
    """A configuration whose knobs are as wanted."""
    designs = space.design_space(task)
    for row in designs.sample(300, np.random.default_rng(0)):
        if wanted(designs.decode(row)):
            return tuple(int(index) for index in row)
    raise AssertionError("no such configuration")


def operator_deliverer(base):
    """What delivers an operator in some configuration into a folder of a folder."""

    def deliver(spec, wanted=lambda _: True, space=None):
        space = space or AutoSpace(AutoOptions())
        task = spec.task("one", TARGET)
        winner = Delivery.Winner(task=task, config=configuration(space, task, wanted), seconds=1e-3)
        folder = base / "one"
        deliver_operator(winner, space, folder, THREADS)
        operator = operator_of(task)
        inputs = operator.inputs()
        # Other weights of the same range; numbers of quantization stay.
        weights = inputs[1]
        inputs[1] = np.random.default_rng(7).permutation(weights.reshape(-1)).reshape(weights.shape)
        return DeliveredOperator(winner=winner, folder=folder, operator=operator, inputs=inputs)

    return deliver


@pytest.fixture
def deliver_one(tmp_path):
    """See ``operator_deliverer``."""
    return operator_deliverer(tmp_path)
