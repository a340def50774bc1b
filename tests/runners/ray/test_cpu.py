"""A cluster that the runner ``ray`` starts for a run measures on this machine's CPU."""

import pytest
from chameleon_core.plugin_api import MeasureJob, StageRef
from chameleon_runners._ray.options import RayOptions
from chameleon_tvm._spaces.template.options import ALGORITHM
from chameleon_tvm._spaces.template.tile_tiling import TILE_PRODUCTS
from chameleon_tvm.api import DenseSpec
from computing import NATIVE, PROVIDER

pytest.importorskip("ray")
RayRunner = pytest.importorskip("chameleon_runners._ray.runner").RayRunner


@pytest.fixture(scope="module")
def runner():
    quick = {"repeat_seconds": 0.001, "min_repeats": 2, "max_repeats": 3}
    # Long enough for a busy machine.
    patient = dict.fromkeys(("build_timeout", "build_floor", "run_timeout", "run_floor"), 100.0)
    with RayRunner(RayOptions(address="local", **quick, **patient)) as result:
        yield result


def measured(runner, spec, chosen):
    """The measurement of the first guess with some knobs; None if there is no such guess."""
    task = spec.task("layer", NATIVE)
    space = PROVIDER.design_space(task)
    guesses = [row.tolist() for row in space.first_guesses if chosen(space.decode(row))]
    if not guesses:
        return None
    stage = StageRef(factory="chameleon_tvm._spaces.template.provider:TemplateSpace")
    (result,) = runner.measure(MeasureJob(task=task, space=stage, configs=[tuple(guesses[0])]))
    return result


@pytest.mark.full
def test_it_measures_without_further_options(runner):
    result = measured(runner, DenseSpec(input=[16, 64], units=64), lambda _: True)
    assert result.message == ""
    assert result.ok
    (device,) = runner.describe()["devices"]
    assert device["state"] == "ready"
    assert runner.lanes == 0, "a search would run beside the timing"


@pytest.mark.full
@pytest.mark.parametrize("dtype", ["bfloat16", "int8"])
def test_kernels_of_tiles_run(runner, dtype):
    spec = DenseSpec(input=[64, 128], units=64, dtype=dtype)
    result = measured(runner, spec, lambda knobs: knobs.get(ALGORITHM) == TILE_PRODUCTS)
    if result is None:
        pytest.skip("this CPU has no tile registers")
    assert result.message == ""
    assert result.ok
