"""Functions of a network that are no products become tasks, and their schedules are delivered."""

import numpy as np
import pytest
from chameleon_core._network_result import NetworkResult
from chameleon_core.plugin_api import Delivery, NoOptions
from chameleon_networks._compile.compile import compile_network
from chameleon_networks._compile.kernels import Kernels
from chameleon_networks._compile.loop_tasks import (
    TUNED_SHARE,
    CostlyFunction,
    costly_functions,
    loop_tasks,
)
from chameleon_networks._compile.lowered_networks import functions_without_kernels
from chameleon_networks._graph.fusion import find_fusions
from chameleon_networks._graph.prepare import prepare_module
from chameleon_networks._graph.relax_utils import relax
from chameleon_testing.conformance import check_space_provider
from chameleon_tvm._device.targets import TVMTargets
from chameleon_tvm._quick_tvm import te, tvm
from chameleon_tvm._spaces.auto import AutoSpace
from chameleon_tvm._spaces.options import AutoOptions
from chameleon_tvm._spaces.sketch.options import SketchOptions
from chameleon_tvm._spaces.sketch.provider import SketchSpace
from chameleon_tvm._spaces.template.provider import template_of
from computing import require_reference
from structlog.testing import capture_logs

from ..modules import module_of  # noqa: TID252 - shared by folders

TARGET = TVMTargets(NoOptions()).resolve("native")
RNG = np.random.default_rng(0)


def _constant(*shape):
    return relax.const(RNG.standard_normal(shape).astype(np.float32))


@pytest.fixture(scope="module")
def network():
    """A product, a normalisation twice, another product."""

    def build(emit, x):
        value = emit(relax.op.matmul(x, _constant(48, 48)))
        for _ in range(2):
            value = emit(relax.op.nn.layer_norm(value, _constant(48), _constant(48), axes=[-1]))
            value = emit(relax.op.matmul(value, _constant(48, 48)))
        return relax.op.nn.relu(value)

    module = prepare_module(module_of(build, (1, 24, 48)), "NHWC")
    return module, find_fusions(module)


def _rows(functions, **seconds):
    return [
        NetworkResult.Kernel(name=name, calls=2, seconds=took, tuned=False)
        for name, took in seconds.items()
        if name in functions
    ]


@pytest.fixture(scope="module")
def tasks(network):
    untuned = compile_network(*network, Kernels({}, AutoSpace(AutoOptions()), TARGET), TARGET)
    rows = _rows(untuned.functions, **dict.fromkeys(untuned.functions, 1.0))
    costly = costly_functions(untuned.functions, rows, 1.0)
    return loop_tasks(costly, functions_without_kernels(*network, TARGET), TARGET)


def test_a_normalisation_is_a_task_and_products_are_not(tasks):
    [task] = tasks
    assert task.operator == "loops"
    assert "layer_norm" in task.name
    assert task.weight == 2


def test_what_takes_little_keeps_its_default(network):
    untuned = compile_network(*network, Kernels({}, AutoSpace(AutoOptions()), TARGET), TARGET)
    [name] = [key for key in untuned.functions if "layer_norm" in key]
    for took, expected in ((0.9 * TUNED_SHARE, 0), (1.1 * TUNED_SHARE, 1)):
        rows = _rows(untuned.functions, **{name: took})
        assert len(costly_functions(untuned.functions, rows, 1.0)) == expected


def test_the_space_is_one(tasks):
    [task] = tasks
    space = template_of(task).space()
    check_space_provider(lambda: AutoSpace(AutoOptions()), task)
    some = space.first_guesses[:: max(1, len(space.first_guesses) // 6)]
    require_reference(AutoSpace(AutoOptions()).builder(task, threads=1), some)


def test_a_winner_is_what_is_compiled(network, tasks):
    [task] = tasks
    space = template_of(task).space()
    winner = Delivery.Winner(task=task, config=tuple(space.first_guesses[3].tolist()), seconds=1e-6)
    kernels = Kernels({task.key: winner}, AutoSpace(AutoOptions()), TARGET)
    result = compile_network(*network, kernels, TARGET)
    assert f"tuned_{task.name}" in result.functions
    assert kernels.loops.plans


def test_a_winner_of_another_space_keeps_the_default_schedule(network, tasks):
    """Its knobs are those of sketches, even if there are as many as the template has."""
    [task] = tasks
    knobs = len(template_of(task).space().knobs)
    kernels = Kernels(
        {task.key: Delivery.Winner(task=task, config=(0,) * knobs, seconds=1e-6)},
        SketchSpace(SketchOptions()),
        TARGET,
    )
    with capture_logs() as entries:
        result = compile_network(*network, kernels, TARGET)
    assert not any(name.startswith("tuned_") for name in result.functions)
    assert {
        "task": task.name,
        "event": "loops_keep_default_schedule",
        "log_level": "warning",
    } in entries


def test_only_functions_of_the_network_are_built(network, monkeypatch):
    # As if a file had a function of the same digest as one of the network's.
    monkeypatch.setattr("chameleon_networks._compile.loop_tasks._structural_key", lambda _: 0)
    source = te.placeholder((24, 48), "float32", name="a")
    out = te.compute((24, 48), lambda i, j: te.exp(source[i, j]), name="b")
    function = tvm.ir.save_json(te.create_prim_func([source, out]))
    entry = CostlyFunction(name="layer_norm", function=function, calls=1, seconds=1.0)
    assert not loop_tasks([entry], functions_without_kernels(*network, TARGET), TARGET)
