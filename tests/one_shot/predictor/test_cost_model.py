"""The cost model knows a task beforehand, learns more where it may, and leaves strangers alone."""

import attrs
import numpy as np
import pytest
import structlog
from chameleon_core._measurement import FailureKind
from chameleon_core._stages.search import Archive
from chameleon_core.plugin_api import Choice, DesignSpace, Observations, StageContext
from chameleon_one_shot import _cost_model as cost_model
from chameleon_one_shot._cost_model import OneShotModel
from chameleon_one_shot._options import OneShotOptions
from chameleon_one_shot._predictor.header import ModelFileError, NoModelError, model_files
from chameleon_one_shot._predictor.metrics import tau


@pytest.fixture
def file(model, tmp_path):
    model.save(tmp_path / "m.safetensors")
    return str(tmp_path / "m.safetensors")


@pytest.fixture
def context(made):
    def make(rows=130, columns=50, *, device=made.device, **given):
        task = made.task_of(rows, columns, **given)
        return StageContext(
            space=made.space_of(task),
            task=task,
            rng=np.random.default_rng(0),
            batch_size=8,
            threads=2,
            device=device,
        )

    return make


def _observed(made, context, count):
    configs = context.space.sample(count, np.random.default_rng(5))
    return Observations(
        configs=configs,
        costs=made.seconds_of(context.task, context.space, configs),
        failures=(None,) * len(configs),
        build_seconds=np.zeros(len(configs)),
    )


def _tau(made, context, model):
    rows = context.space.all_legal
    targets = -np.log(made.seconds_of(context.task, context.space, rows))
    return tau(model.predict(rows), targets)


@pytest.mark.parametrize("finetune", [False, True])
def test_it_is_trained_before_anything_is_measured(file, context, made, finetune):
    where = context()
    model = OneShotModel(OneShotOptions(model=file, finetune=finetune), where)
    assert model.trained
    assert _tau(made, where, model) > 0.4
    # A task whose loops are better in the other order than in all others.
    rows = where.space.all_legal
    other = np.where(where.space.values(rows)["order"] == "rows", 2.0, 1.0)
    truth = -np.log(made.seconds_of(where.task, where.space, rows) * other)
    before = tau(model.predict(rows), truth)
    observed = _observed(made, where, 32)
    order = where.space.values(observed.configs)["order"]
    costs = observed.costs * np.where(order == "rows", 2.0, 1.0)
    model.fit(attrs.evolve(observed, costs=costs))
    after = tau(model.predict(rows), truth)
    assert after > before if finetune else after == before


def test_failures_alone_teach_nothing(file, context):
    where = context()
    model = OneShotModel(OneShotOptions(model=file, finetune=True), where)
    rows = where.space.all_legal[:3]
    before = model.predict(rows)
    model.fit(
        Observations(
            configs=rows,
            costs=np.full(3, np.inf),
            failures=(FailureKind.RUN_ERROR,) * 3,
            build_seconds=np.zeros(3),
        )
    )
    np.testing.assert_array_equal(model.predict(rows), before)


def test_a_stranger_is_tuned_by_measurement_and_the_log_says_why(file, context, made):
    where = context(operator="other")
    options = OneShotOptions(model=file)
    with structlog.testing.capture_logs() as logs:
        model = OneShotModel(options, where)
    assert not model.trained
    assert "operator other" in logs[0]["reason"]
    model.fit(_observed(made, where, 16))
    assert model.trained
    assert len(model.predict(where.space.all_legal[:4])) == 4


def test_the_next_included_model_predicts_what_the_first_does_not_know(
    model, context, tmp_path, monkeypatch
):
    columns = model.detector.task_columns
    other = tuple(name.replace("float32", "bfloat16") for name in columns)
    detector = attrs.evolve(model.detector, task_columns=other)
    files = [tmp_path / "first.safetensors", tmp_path / "second.safetensors"]
    model.save(files[0])
    attrs.evolve(model, detector=detector).save(files[1])
    monkeypatch.setattr(cost_model, "model_files", lambda *_: files)
    known = {}
    for dtype in ("float32", "bfloat16", "int8"):
        with structlog.testing.capture_logs() as logs:
            known[dtype] = OneShotModel(OneShotOptions(), context(dtype=dtype)).trained
        assert [(log["model"], log["reason"][-4:]) for log in logs] == (
            [("second.safetensors", "int8")] if dtype == "int8" else []
        )
    assert known == {"float32": True, "bfloat16": True, "int8": False}


@pytest.mark.parametrize(
    "other",
    [
        {"cores": 1024},
        {"features": ["avx2", "fma", "avxvnni"]},
        {"l4_bytes": 1},
        {"features": ["sse2"], "vector_bytes": 16},
        {"features": ["neon"], "mcpu": "cortex-a72"},
    ],
)
def test_another_cpu_counts_as_the_nearest_which_is_told_once(file, context, made, other):
    usual, first = context(), context(device={**made.device, **other})
    second = attrs.evolve(context(64, device=first.device), archive=first.archive)
    options = OneShotOptions(model=file)
    with structlog.testing.capture_logs() as logs:
        models = [OneShotModel(options, row) for row in (first, second)]
    assert all(model.trained for model in models)
    assert [log["event"] for log in logs] == ["nearest_device_assumed"]
    rows = usual.space.all_legal
    same = OneShotModel(options, usual).predict(rows)
    np.testing.assert_allclose(models[0].predict(rows), same, rtol=1e-3)


def test_if_no_model_is_for_the_target_operators_are_tuned_without_one(context, made):
    first = context(device={"kind": "cuda", "mcpu": "sm_90"})
    second = attrs.evolve(context(64, device=first.device), archive=first.archive)
    with structlog.testing.capture_logs() as logs:
        models = [OneShotModel(OneShotOptions(), row) for row in (first, second)]
    assert not any(model.trained for model in models)
    (logged,) = logs
    assert "no included model is for this target (cuda sm_90)" in logged["problem"]
    models[0].fit(_observed(made, first, 16))
    assert models[0].trained


def test_a_model_of_another_target_is_refused(file, context):
    with pytest.raises(ModelFileError, match="trained for llvm, and this target is cuda"):
        OneShotModel(OneShotOptions(model=file), context(device={"kind": "cuda"}))


def test_without_a_model_the_error_says_how_to_make_one(context):
    with pytest.raises(NoModelError) as caught:
        OneShotModel(OneShotOptions(model="nowhere"), context())
    assert "chameleon pretrain" in (caught.value.hint or "")


def test_the_box_is_searched_by_features(model, made, tmp_path):
    wide = {**made.device, "features": ["avx2", "avx512f", "fma"]}
    target = {"kind": "llvm", "features": ["avx2", "fma"]}
    both = [("narrow", target), ("wide", {**target, "features": wide["features"]})]
    for name, of in both:
        provenance = attrs.evolve(model.provenance, targets=(of,))
        attrs.evolve(model, provenance=provenance).save(tmp_path / f"{name}.safetensors")
    assert model_files("auto", wide, tmp_path)[0].stem == "wide"
    assert model_files("auto", made.device, tmp_path)[0].stem == "narrow"
    assert model_files("wide", made.device, tmp_path)[0].stem == "wide"
    # A CPU that lacks something, or has something new, gets the nearest.
    new = {**wide, "features": ["avx", "avx2", "avx512f", "avx512new"]}
    assert model_files("auto", new, tmp_path)[0].stem == "wide"
    assert model_files("auto", {**wide, "features": ["avx", "avx2"]}, tmp_path)[0].stem == "narrow"
    with pytest.raises(NoModelError, match="which is unknown"):
        model_files("auto", {}, tmp_path)
    assert model_files("auto", {"kind": "llvm", "features": ["neon"]}, tmp_path)[0].stem == "narrow"
    with pytest.raises(NoModelError, match="cuda"):
        model_files("auto", {"kind": "cuda"}, tmp_path)


def test_a_knob_that_the_training_lacks_is_ignored_and_told_once(file, context):
    known = context()
    stages = Choice(name="stages", options=(1, 2))
    space = DesignSpace(
        [stages, *known.space.knobs],
        features=known.space.features_block,
        first_guesses=np.insert(known.space.first_guesses, 0, 0, axis=1),
    )
    new = attrs.evolve(known, space=space, archive=Archive())
    with structlog.testing.capture_logs() as lines:
        models = [OneShotModel(OneShotOptions(model=file), new) for _ in range(2)]
    unknown = [line["unknown"] for line in lines if line["event"] == "unknown_knobs_ignored"]
    assert len(unknown) == 1
    assert "'stages'" in unknown[0]
    assert all(model.trained for model in models)
    rows = known.space.sample(30, np.random.default_rng(1))
    expected = OneShotModel(OneShotOptions(model=file), known).predict(rows)
    for stage in (0, 1):
        configs = np.concatenate([np.full((30, 1), stage, np.int32), rows], axis=1)
        assert models[0].predict(configs) == pytest.approx(expected, rel=1e-6)


def test_a_space_with_no_known_knob_is_left_to_the_fallback(file, context):
    known = context()
    space = DesignSpace([Choice(name="stages", options=(1, 2))])
    with structlog.testing.capture_logs() as lines:
        model = OneShotModel(OneShotOptions(model=file), attrs.evolve(known, space=space))
    assert not model.trained
    assert any("none of its knobs ('stages')" in line.get("reason", "") for line in lines)
