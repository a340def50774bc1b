"""MetaSchedule as a rival on a CUDA target, up to what needs a GPU: its times are made up."""

import random
import time

import pytest
from chameleon_tvm._rivals import metaschedule
from chameleon_tvm._rivals.recorded import RecordedOptions, RecordedSchedule
from chameleon_tvm.api import DenseSpec
from computing import resolved
from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms


@derived_object
class MadeUpFuture(ms.runner.PyRunnerFuture):
    """The time of a kernel that was built and not run."""

    def done(self):
        return True

    def result(self):
        return ms.runner.RunnerResult([random.uniform(1e-4, 1e-3)], None)


@derived_object
class MadeUp(ms.runner.PyRunner):
    """A runner without a device."""

    def run(self, runner_inputs):
        return [MadeUpFuture() for _ in runner_inputs]


@pytest.mark.long
def test_it_tunes_for_cuda_and_its_winner_is_a_contender(monkeypatch, tmp_path, nvcc):
    target = resolved("cuda -arch=sm_80")
    task = DenseSpec(input=[64, 64], units=64).task("t", target)
    local = metaschedule.builder_and_runner
    monkeypatch.setattr(
        metaschedule, "builder_and_runner", lambda *a, **k: {**local(*a, **k), "runner": MadeUp()}
    )
    request = {
        "task": task.to_json(),
        "launched": time.time(),
        "threads": 2,
        "wall_seconds": 0.0,
        "trials": 8,
        "as_shipped": False,
        "seed": 0,
    }
    answer = metaschedule.tune(request, str(tmp_path / "work"))
    assert answer["trials"] == 8
    assert answer["failed"] == 0
    stage = RecordedSchedule(RecordedOptions(trace=answer["trace"]))
    assert stage.supports(task)
    (variant,) = stage.variants(task)
    nvcc(stage.builder(task, variant, threads=1).program(()).function, target)
