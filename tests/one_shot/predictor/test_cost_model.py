"""The cost model knows a task beforehand, learns more where it may, and leaves strangers alone."""

from __future__ import annotations

import attrs
import numpy as np
import pytest
import structlog
from chameleon_core.measurement import FailureKind
from chameleon_core.stages import Observations, StageContext
from chameleon_one_shot.cost_model import OneShotModel
from chameleon_one_shot.models import NoModelError, model_file
from chameleon_one_shot.options import OneShotOptions
from chameleon_one_shot.predictor.header import ModelFileError
from chameleon_one_shot.predictor.metrics import tau
from chameleon_one_shot.predictor.model import save


@pytest.fixture
def file(model, tmp_path):
    save(tmp_path / "m.safetensors", model)
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
    rows = context.space.everything
    wanted = -np.log(made.seconds_of(context.task, context.space, rows))
    return tau(model.predict(rows), wanted)


@pytest.mark.parametrize("finetune", [False, True])
def test_it_is_trained_before_anything_is_measured(file, context, made, finetune):
    where = context()
    model = OneShotModel(OneShotOptions(model=file, finetune=finetune), where)
    assert model.trained
    before = _tau(made, where, model)
    assert before > 0.4
    model.fit(_observed(made, where, 32))
    after = _tau(made, where, model)
    assert after > before if finetune else after == before


def test_failures_alone_teach_nothing(file, context):
    where = context()
    model = OneShotModel(OneShotOptions(model=file, finetune=True), where)
    rows = where.space.everything[:3]
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
    assert "operator other" in logs[0]["because"]
    model.fit(_observed(made, where, 16))
    assert model.trained
    assert len(model.predict(where.space.everything[:4])) == 4


def test_another_device_is_told_once_for_all_tasks(file, context, made):
    device = {**made.device, "cores": 1024}
    first = context(device=device)
    others = [
        attrs.evolve(context(rows, device=device), archive=first.archive) for rows in (64, 90)
    ]
    with structlog.testing.capture_logs() as logs:
        models = [OneShotModel(OneShotOptions(model=file), one) for one in (first, *others)]
    assert not any(model.trained for model in models)
    assert [one["event"] for one in logs] == [
        "the predictor was trained on other devices; all tasks are tuned by measurement instead"
    ]


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
        save(tmp_path / f"{name}.safetensors", attrs.evolve(model, provenance=provenance))
    assert model_file("auto", wide, tmp_path).stem == "wide"
    assert model_file("auto", made.device, tmp_path).stem == "narrow"
    assert model_file("wide", made.device, tmp_path).stem == "wide"
    with pytest.raises(NoModelError, match="cuda"):
        model_file("auto", {"kind": "cuda"}, tmp_path)
