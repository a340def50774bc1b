"""The runner reads the clock of real kernels, unless it is switched off."""

import pytest
from chameleon_core.plugin_api import MeasureJob, NoOptions, StageRef
from chameleon_runners._local.options import LocalOptions
from chameleon_runners._local.runner import LocalRunner
from chameleon_tvm._device.targets import TVMTargets
from chameleon_tvm.api import DenseSpec

from ..conftest import QUICK  # noqa: TID252 - tests are no package

SPACE = StageRef(factory="chameleon_tvm._spaces.auto:AutoSpace")


@pytest.mark.full
@pytest.mark.parametrize("clock", [True, False])
def test_speeds_are_those_of_each_timing(clock):
    task = DenseSpec(input=[64, 64], units=64).task("t", TVMTargets(NoOptions()).resolve("native"))
    configs = SPACE.create().design_space(task).first_guesses[:2]
    job = MeasureJob(task=task, space=SPACE, configs=[tuple(map(int, row)) for row in configs])
    with LocalRunner(LocalOptions(**{**QUICK, "clock": clock, "leaders": 2})) as runner:
        assert all(measured.ok for measured in runner.measure(job))
        speeds, usual = runner.disturbance().speeds, runner.disturbance().usual_speeds
    timings = sum(sum(counts.values()) for counts in speeds.values())
    assert (timings > len(configs)) is clock
    assert set(usual) == set(speeds)
    assert bool(usual) is clock
