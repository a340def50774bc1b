"""Kernels of several buckets that read weights in the same order."""

import copy

import numpy as np
import pytest
from chameleon_core.plugin_api import Delivery
from chameleon_networks._delivery.kernel_choice import MOST_SLOWER, with_shared_packings
from chameleon_tvm._spaces.template.options import TemplateOptions
from chameleon_tvm._spaces.template.provider import TemplateSpace
from chameleon_tvm.api import DenseSpec
from computing import X86, resolved

SPACE = TemplateSpace(TemplateOptions(algorithms=("direct",)))
TARGET = resolved(f"{X86}haswell -num-cores=2")


def task_of(rows, units=96):
    return DenseSpec(input=(rows, 64), units=units).task(f"{units} @{rows}", TARGET)


def winner_of(rows, vectors, *, seconds=None, units=96, **more):
    """The best guess for a number of rows, whose blocks have a number of vectors."""
    task = task_of(rows, units)
    space = SPACE.design_space(task)
    configs = [
        tuple(config)
        for config in space.first_guesses.tolist()
        if space.decode(config)["tile_vectors"] == vectors
    ]
    return Delivery.Winner(task=task, config=configs[0], seconds=seconds, **more)


def packed(winners):
    """The packed weights of each kernel, for equal weights."""
    arrays = []
    for winner in winners:
        builder = SPACE.builder(winner.task, threads=1)
        inputs = list(builder.inputs)
        inputs[1] = np.arange(inputs[1].size, dtype=np.float32).reshape(inputs[1].shape)
        builder.use(inputs)
        arrays.append(builder.program(winner.config).inputs[1].tobytes())
    return arrays


def vectors_of(winners):
    return [
        SPACE.design_space(winner.task).decode(winner.config)["tile_vectors"] for winner in winners
    ]


class Estimated(TemplateSpace):
    """Design spaces with another estimate of the time of kernels."""

    def __init__(self, estimate):
        super().__init__(SPACE.options)
        self.estimate = estimate

    def design_space(self, task):
        space = copy.copy(super().design_space(task))
        space.guessed_cost = self.estimate
        return space


def equal(values):
    return np.ones(len(values["tile_vectors"]))


def test_most_tasks_decide_for_the_others():
    winners = [winner_of(rows, vectors) for rows, vectors in ((4, 2), (6, 2), (8, 1))]
    assert len({*packed(winners)}) > 1
    shared = with_shared_packings(winners, Estimated(equal))
    assert [winner.task for winner in shared] == [winner.task for winner in winners]
    assert len({*packed(shared)}) == 1
    assert shared[:2] == winners[:2], "kernels that have the order stay"
    assert winners[2].config in shared[2].guesses, "it replaces a kernel that fails"


def test_kernels_that_are_estimated_to_be_slow_replace_none():
    def slow(values):
        return np.where(values["tile_vectors"] == 2, 1.1 * MOST_SLOWER, 1.0)

    winners = [winner_of(rows, vectors) for rows, vectors in ((4, 2), (6, 2), (8, 1))]
    assert with_shared_packings(winners, Estimated(slow)) == winners


@pytest.mark.parametrize(("seconds", "vectors"), [(1.1, 2), (1.1 * MOST_SLOWER, 1)])
def test_measured_times_decide(seconds, vectors):
    other = winner_of(8, 2, seconds=seconds)
    last = winner_of(8, 1, seconds=1.0, others=(other,))
    winners = [winner_of(4, 2, seconds=1.0), winner_of(6, 2, seconds=1.0), last]
    shared = with_shared_packings(winners, Estimated(None))
    assert vectors_of(shared) == [2, 2, vectors]
    assert shared[2].seconds == (seconds if vectors == 2 else 1.0)


def test_other_weights_have_orders_of_their_own():
    winners = [winner_of(8, 1), winner_of(8, 2, units=64)]
    assert with_shared_packings(winners, SPACE) == winners
