"""A target that this machine has no device for."""

import platform

import pytest
from chameleon_core import api
from chameleon_core._errors import TargetError
from chameleon_core.plugin_api import MeasureJob, NoOptions, StageRef
from chameleon_tvm._device.targets import TVMTargets
from chameleon_tvm._quick_tvm import tvm
from chameleon_tvm._spaces.auto import AutoSpace
from chameleon_tvm._spaces.options import AutoOptions
from chameleon_tvm.api import DenseSpec


@pytest.mark.skipif(tvm.runtime.device("cuda").exist, reason="this machine has a GPU")
def test_a_device_that_is_not_there_ends_the_job_at_once(runner):
    target = TVMTargets(NoOptions()).resolve("cuda -arch=sm_80")
    task = DenseSpec(input=[64, 64], units=64).task("dense", target)
    configs = AutoSpace(AutoOptions()).design_space(task).first_guesses[:2]
    job = MeasureJob(
        task=task,
        space=StageRef(factory="chameleon_tvm._spaces.auto:AutoSpace"),
        configs=[tuple(int(index) for index in row) for row in configs],
    )
    with pytest.raises(TargetError, match="no such device in this machine") as error:
        list(runner.measure(job))
    assert "runner: cuda" in error.value.hint


def test_the_target_of_another_cpu_is_refused_before_the_first_candidate(tmp_path):
    other = "x86_64" if platform.machine() == "aarch64" else "aarch64"
    pipeline = api.from_dict(
        {
            "model": {"operators": [{"dense": {"input": [8, 8], "units": 8}}]},
            "target": f"llvm -mtriple={other}-linux-gnu -num-cores=4",
            "baselines": [],
            "records": "none",
            "budget": {"measurements": 4},
            "output": str(tmp_path / "run"),
        }
    )
    with pytest.raises(TargetError, match=f"is for an? {other} CPU") as error:
        api.run_pipeline(pipeline)
    assert "runner: rpc" in error.value.hint
    assert error.value.exit_code == 4
    with api.RunView(tmp_path / "run") as run:
        assert not run.store.measured
