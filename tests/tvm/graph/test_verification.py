"""Wrong outputs are noticed whatever they are, and the tasks to blame are found."""

from __future__ import annotations

import numpy as np
from chameleon_core.errors import ChameleonError
from chameleon_core.stages import Arrays
from chameleon_tvm.graph.verify import compared, guilty
from hypothesis import given
from hypothesis import strategies as st

SAMPLE = [np.array([1.0, -2.0, 4.0], np.float32)]


def test_a_right_network_has_a_small_error():
    verdict = compared(lambda x: [x[0] * np.float32(1 + 1e-6)], [SAMPLE], [SAMPLE])
    assert verdict.problem is None
    assert verdict.max_relative_error is not None
    assert verdict.max_relative_error < 1e-5


def test_wrong_networks_are_noticed():
    def dead(_: Arrays) -> Arrays:
        raise ChameleonError("it died")

    for run, words in (
        (lambda x: [x[0] + 1], "off by 2.5e-01"),
        (lambda x: [x[0] * np.nan], "off by inf"),
        (lambda x: [x[0][:2]], "shapes"),
        (lambda x: [x[0], x[0]], "shapes"),
        (dead, "it died"),
    ):
        verdict = compared(run, [SAMPLE], [SAMPLE])
        assert verdict.problem is not None
        assert words in verdict.problem


@given(st.integers(1, 20), st.data())
def test_one_guilty_task_is_found(count: int, data: st.DataObject):
    keys = [f"task{place}" for place in range(count)]
    culprit = data.draw(st.sampled_from(keys))
    assert guilty(keys, lambda enabled: culprit in enabled) == [culprit]


@given(st.sets(st.integers(0, 9), min_size=1))
def test_of_several_guilty_tasks_one_is_named(culprits: set[int]):
    keys = [str(place) for place in range(10)]
    [named] = guilty(keys, lambda enabled: any(str(one) in enabled for one in culprits))
    assert int(named) in culprits


def test_tasks_that_fail_together_only_are_all_named():
    keys = ["a", "b", "c", "d"]
    assert guilty(keys, lambda enabled: {"a", "d"} <= enabled) == keys


def test_a_graph_that_fails_without_kernels_accuses_none():
    assert guilty(["a", "b"], lambda _: True) == []
