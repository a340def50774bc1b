"""Chameleon as a strategy of ``ms.tune_tir``: proposals, learning, records, errors."""

import json
import logging
from types import SimpleNamespace

import numpy as np
import pytest
from chameleon_core._errors import ChameleonError
from chameleon_core._measurement import FailureKind
from chameleon_networks._graph.relax_utils import relax
from chameleon_tvm._device.targets import tvm_target
from chameleon_tvm._metaschedule import ChameleonStrategy, load_tensor_intrinsics
from chameleon_tvm._metaschedule.strategy import (
    TracePlan,
    Workload,
    canonical_target,
    to_measurement,
)
from chameleon_tvm._metaschedule.traces import applied, config_of
from chameleon_tvm._quick_tvm import te, tvm
from chameleon_tvm._spaces.sketch.options import SketchOptions
from computing import resolved
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.testing import dummy_object

SHAPE = (32, 64, 48)


@pytest.fixture(autouse=True)
def _no_handlers_of_others():
    """MetaSchedule goes by the names of its logger's handlers, and not all have one.

    pytest adds some of its own to loggers that do not propagate, as MetaSchedule's does not once
    it was used.
    """
    logger = logging.getLogger("tvm.s_tir.meta_schedule")
    logger.handlers.clear()
    logger.propagate = True


CPU = json.loads(resolved("llvm -mcpu=native -num-cores=2"))


def _dense(rows, features, units):
    data = te.placeholder((rows, features), "float32", name="data")
    weights = te.placeholder((features, units), "float32", name="weights")
    k = te.reduce_axis((0, features), name="k")
    product = te.compute(
        (rows, units), lambda m, n: te.sum(data[m, k] * weights[k, n], axis=k), name="product"
    )
    return te.create_prim_func([data, weights, product])


@pytest.fixture(scope="module")
def target():
    return tvm.target.Target(CPU)


@pytest.fixture
def context(target):
    """A tuning context as ``ms.tune_tir`` makes it."""
    load_tensor_intrinsics()
    return ms.TuneContext(
        _dense(*SHAPE),
        target=target,
        space_generator="post-order-apply",
        search_strategy=ChameleonStrategy(explorer="random", cost_model="none", seed=3),
        task_name="dense",
        rand_state=1,
        num_threads=1,
    )


def _plan(context):
    return TracePlan(
        Workload.of(context), context.generate_design_space(), SketchOptions(rewrite_sums=False)
    )


def test_a_small_layer_is_tuned_and_right(target, tmp_path):
    function = _dense(*SHAPE)

    def tune(trials):
        return ms.tune_tir(
            mod=function,
            target=target,
            work_dir=str(tmp_path),
            max_trials_global=trials,
            num_trials_per_iter=8,
            strategy=ChameleonStrategy(seed=0),
            builder=dummy_object.DummyBuilder(),
            runner=dummy_object.DummyRunner(),
            measure_callbacks=[ms.measure_callback.AddToDatabase()],
            num_tuning_cores=1,
            seed=1,
        )

    database = tune(16)
    assert len(database) == 16
    # Records on disk are learnt: none of them is proposed again.
    database = tune(8)
    assert len(database) == 24
    assert len({str(record.trace) for record in database.get_all_tuning_records()}) == 24
    best = ms.tir_integration.compile_tir(database, function, target)
    built = tvm.compile(best.mod, target=target)
    rng = np.random.default_rng(0)
    rows, features, units = SHAPE
    data = rng.standard_normal((rows, features), "float32")
    weights = rng.standard_normal((features, units), "float32")
    out = tvm.runtime.tensor(np.zeros((rows, units), "float32"))
    built["main"](tvm.runtime.tensor(data), tvm.runtime.tensor(weights), out)
    np.testing.assert_allclose(out.numpy(), data @ weights, rtol=1e-4, atol=1e-4)


def test_every_task_of_a_network_has_its_own(target, tmp_path):
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((16, 32), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            wide = builder.emit(relax.op.matmul(x, relax.const(np.ones((32, 64), "float32"))))
            narrow = relax.op.matmul(wide, relax.const(np.ones((64, 16), "float32")))
            out = builder.emit_output(narrow)
        builder.emit_func_output(out)
    database = ms.relax_integration.tune_relax(
        relax.transform.LegalizeOps()(builder.get()),
        params={},
        target=target,
        work_dir=str(tmp_path),
        max_trials_global=16,
        max_trials_per_task=8,
        num_trials_per_iter=4,
        strategy=ChameleonStrategy(seed=0),
        builder=dummy_object.DummyBuilder(),
        runner=dummy_object.DummyRunner(),
        measure_callbacks=[ms.measure_callback.AddToDatabase()],
        seed=1,
    )
    workloads = [str(record.workload.mod) for record in database.get_all_tuning_records()]
    assert sorted(workloads.count(workload) for workload in set(workloads)) == [8, 8]


def test_candidates_are_distinct_and_within_the_trials(context):
    context.pre_tuning(20, 16, database=ms.database.MemoryDatabase())
    seen = []
    for expected in (16, 4):
        batch = context.generate_measure_candidates()
        assert 0 < len(batch) <= expected
        seen += [str(candidate.sch.trace) for candidate in batch]
        results = [ms.runner.RunnerResult([1e-3], None) for _ in batch]
        context.notify_runner_results(batch, results)
    assert len(set(seen)) == len(seen)
    while (more := context.generate_measure_candidates()) is not None:
        seen += [str(candidate.sch.trace) for candidate in more]
        context.notify_runner_results(
            more, [ms.runner.RunnerResult(None, "LocalRunner: Timeout") for _ in more]
        )
    assert len(seen) == 20
    context.post_tuning()


def test_a_space_of_the_users_own_is_searched(target):
    def tiled(schedule):
        rows, units, _ = schedule.get_loops(schedule.get_sblock("product"))
        schedule.split(rows, schedule.sample_perfect_tile(rows, n=2, max_innermost_factor=32))
        schedule.split(units, [None, schedule.sample_categorical([4, 8, 16], [0.3, 0.3, 0.4])])

    context = ms.TuneContext(
        _dense(*SHAPE),
        target=target,
        space_generator=tiled,
        search_strategy=ChameleonStrategy(explorer="random", cost_model="none", seed=0),
        num_threads=1,
    )
    context.pre_tuning(64, 64)
    batch = context.generate_measure_candidates()
    assert len({str(candidate.sch.trace) for candidate in batch}) == 6 * 3, "all there are"
    context.notify_runner_results(batch, [ms.runner.RunnerResult([1e-3], None) for _ in batch])
    assert context.generate_measure_candidates() is None


def test_the_same_seed_proposes_the_same(context):
    proposed = []
    for _ in range(2):
        clone = context.clone()
        clone.pre_tuning(8, 8)
        proposed.append([str(c.sch.trace) for c in clone.generate_measure_candidates()])
    assert proposed[0] == proposed[1]


def test_configurations_survive_the_way_through_a_database(context):
    plan = _plan(context)
    known = 0
    for config in plan.space.sample(8, np.random.default_rng(0)):
        try:
            result = applied(plan, config.tolist())
        except ChameleonError:
            continue
        known += 1
        assert config_of(plan, result.trace) == tuple(config.tolist())
    assert known > 4
    foreign = tvm.s_tir.Schedule(_dense(*SHAPE))
    foreign.fuse(*foreign.get_loops(foreign.get_sblock("product"))[:2])
    assert config_of(plan, foreign.trace) is None


def test_records_of_earlier_tuning_are_learnt(context, target):
    plan = _plan(context)
    database = ms.database.MemoryDatabase()
    workload = database.commit_workload(context.mod)
    [config] = plan.space.sample(1, np.random.default_rng(5))
    schedule = applied(plan, config.tolist())
    record = ms.database.TuningRecord(schedule.trace, workload, [1e-3], target)
    database.commit_tuning_record(record)
    context.pre_tuning(64, 64, database=database)
    batch = context.generate_measure_candidates()
    assert str(schedule.trace) not in {str(candidate.sch.trace) for candidate in batch}


@pytest.mark.parametrize(
    ("problem", "kind"),
    [
        ("LocalBuilder: Timeout, killed after 30 seconds", FailureKind.BUILD_TIMEOUT),
        ("LocalBuilder: An exception occurred\nTimeout?", FailureKind.BUILD_ERROR),
        ("LocalRunner: Timeout, killed after 30 seconds", FailureKind.RUN_TIMEOUT),
        ("RPCRunner: An exception occurred\n", FailureKind.RUN_ERROR),
    ],
)
def test_failures_are_typed(problem, kind):
    result = to_measurement((1,), None, problem=problem)
    assert (result.failure, result.message) == (kind, problem.strip())


def test_times_that_are_none_are_failures():
    assert to_measurement((1,), [1e-3, 2e-3]).seconds == (1e-3, 2e-3)
    assert to_measurement((1,), [0.0]).failure is FailureKind.RUN_ERROR
    assert to_measurement((1,), []).failure is FailureKind.RUN_ERROR


def test_an_unknown_stage_is_said_at_once():
    with pytest.raises(ChameleonError, match="unknown explorer 'anealing'; did you mean"):
        ChameleonStrategy(explorer="anealing")
    with pytest.raises(ChameleonError, match="unknown option 'chians'"):
        ChameleonStrategy(explorer={"name": "annealing", "chians": 3})


def test_what_is_missing_is_said(context):
    with pytest.raises(RuntimeError, match=r"before `pre_tuning`\. Pass it as `strategy=`"):
        ChameleonStrategy().generate_measure_candidates()
    with pytest.raises(ChameleonError, match="made no design space"):
        TracePlan(Workload.of(context), [], SketchOptions())
    empty = SimpleNamespace(task_name="t", mod=None, target=None, space_generator=None)
    with pytest.raises(ChameleonError, match="no module"):
        Workload.of(empty)


def test_targets_are_canonical(target):
    known = canonical_target(target)
    assert json.loads(known) == CPU
    assert canonical_target(tvm_target(known)) == known
