"""Kernels that hold much memory: so many are held at once as fit, and none fails for the others."""

from __future__ import annotations

import pytest
from chameleon_core.measurement import FailureKind
from chameleon_runners.local.runner import LocalRunner
from chameleon_runners.testing.faults import Fault, config

from ..conftest import by_config, job  # noqa: TID252 - tests are no package

MANY = [config(Fault.NONE, number) for number in range(14)]


@pytest.mark.parametrize(
    ("kernel_mib", "run_mib"), [(70, 0), (0, 70), (40, 40), (150, 0), (100, 100)]
)
def test_as_many_kernels_are_held_as_fit(runner: LocalRunner, kernel_mib: int, run_mib: int):
    found = by_config(list(runner.measure(job(MANY, kernel_mib=kernel_mib, run_mib=run_mib))))
    assert {one: found[one].message for one in found if not found[one].ok} == {}
    assert set(found) == set(MANY)


@pytest.mark.parametrize("option", ["kernel_mib", "run_mib"])
def test_one_that_does_not_fit_alone_fails(runner: LocalRunner, option: str):
    found = by_config(list(runner.measure(job(MANY[:5], **{option: 4096}))))
    assert {one.failure for one in found.values()} == {FailureKind.OUT_OF_MEMORY}


def test_others_go_on_beside_one_that_does_not_fit(runner: LocalRunner):
    faults = [*MANY[:6], config(Fault.EATS_MEMORY), *MANY[6:]]
    found = by_config(list(runner.measure(job(faults, kernel_mib=40))))
    assert found.pop(config(Fault.EATS_MEMORY)).failure is FailureKind.OUT_OF_MEMORY
    assert all(one.ok for one in found.values())
