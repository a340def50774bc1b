"""Learning from other tasks and earlier runs, and never from what is held out."""

import attrs
import numpy as np
import pytest
import xgboost
from chameleon_core._errors import RunFolderError
from chameleon_core._measurement import FailureKind, Measurement, Spending
from chameleon_core._run_files import RunFile
from chameleon_core._task import Task
from chameleon_core.api import RecordStore
from chameleon_core.plugin_api import Archive, Choice, DesignSpace
from chameleon_cost_models._options import (
    EnsembleOptions,
    LightGBMOptions,
    TransferOptions,
    XGBoostOptions,
)
from chameleon_cost_models._tree_model import TransferModel
from chameleon_testing._conformance_cases import context_of, grid, observe, quality, tiled_space
from chameleon_testing.conformance import check_cost_model
from stages import maker

TRANSFER = TransferOptions(tasks=True, records=50)


def task_of(name):
    return Task(name=name, operator="test", arguments={"n": name}, target="none", flop=1.0)


def history(name, *, count=100, space=None, seed=0, **more):
    space = space or tiled_space()
    configs = space.sample(count, np.random.default_rng(seed))
    return Archive.History(
        task=task_of(name), space=space, observations=observe(space, configs, **more)
    )


def make_context(*histories, task="mine", space=None):
    context = attrs.evolve(context_of(space or tiled_space()), task=task_of(task))
    for row in histories:
        context.archive.record(row)
    return context


def written(folder, *histories):
    """A run folder with these measurements."""
    folder.mkdir()
    with RecordStore(folder / RunFile.RECORDS) as store:
        for row in histories:
            stored = store.add_task(row.task, "test", row.space.fingerprint)
            keys = row.space.keys(row.observations.configs).tolist()
            rows = zip(row.observations.configs.tolist(), row.observations.costs, strict=True)
            for key, (config, cost) in zip(keys, rows, strict=True):
                failed = not np.isfinite(cost)
                measurement = Measurement(
                    config=tuple(config),
                    seconds=() if failed else (float(cost),),
                    failure=FailureKind.RUN_ERROR if failed else None,
                )
                knobs = row.space.decode(config)
                store.add(stored.id, key, measurement, knobs=knobs, spending=Spending())
    return folder


@pytest.fixture(params=[XGBoostOptions, LightGBMOptions, EnsembleOptions])
def make(request):
    return lambda context, transfer=TRANSFER: maker(request.param(transfer=transfer))(context)


@pytest.fixture
def lessons(monkeypatch):
    """Every table of features and targets a base model was fitted to."""
    inputs = []
    original = xgboost.DMatrix

    def spying(features, *arguments, **named):
        inputs.append((np.array(features), np.array(named["label"])))
        return original(features, *arguments, **named)

    monkeypatch.setattr(xgboost, "DMatrix", spying)
    return inputs


def test_models_conform_with_transfer_switched_on(make):
    check_cost_model(make)


def test_other_tasks_train_a_model_before_its_own_first_measurement(make):
    context = make_context(history("other", count=300))
    model = make(context)
    assert model.trained
    unseen = context.space.sample(200, np.random.default_rng(9))
    truth = quality(context.space, unseen)
    assert np.corrcoef(model.predict(unseen), truth)[0, 1] > 0.8


def test_it_is_better_than_without_after_few_measurements(make):
    context = make_context(history("other", count=300))
    own = context.space.sample(8, np.random.default_rng(5))
    unseen = context.space.sample(200, np.random.default_rng(9))
    correlations = []
    for transfer in (TRANSFER, TransferOptions()):
        model = make(context, transfer)
        model.fit(observe(context.space, own))
        truth = quality(context.space, unseen)
        correlations.append(np.corrcoef(model.predict(unseen), truth)[0, 1])
    assert correlations[0] > correlations[1] + 0.1


def test_own_measurements_correct_a_wrong_base_model(make):
    space = tiled_space()
    other = history("other", count=300)
    # The opposite of what is true here.
    costs = 1e-3 * quality(space, other.observations.configs)
    wrong = attrs.evolve(other, observations=attrs.evolve(other.observations, costs=costs))
    model = make(make_context(wrong))
    model.fit(observe(space, space.sample(200, np.random.default_rng(5))))
    unseen = space.sample(200, np.random.default_rng(9))
    assert np.corrcoef(model.predict(unseen), quality(space, unseen))[0, 1] > 0.5


def test_by_default_nothing_is_transferred(make):
    assert not make(make_context(history("other", count=300)), TransferOptions()).trained


def test_too_few_records_teach_nothing(make):
    assert not make(make_context(history("other", count=49))).trained


def test_within_a_run_the_task_itself_is_never_seen(make, lessons):
    held_out = history("mine", count=300, seed=1)
    # The same work under another name is the same task.
    renamed = attrs.evolve(
        history("other", count=100), task=attrs.evolve(held_out.task, name="other name")
    )
    context = make_context(held_out, renamed, history("third", count=60, seed=2))
    assert make(context).trained
    ((features, _),) = lessons
    assert len(features) == 60
    third = context.archive.others(context.task)[0].observations.configs
    assert np.array_equal(features, context.space.features(third))


@pytest.mark.parametrize("same_task", [True, False])
def test_of_earlier_runs_it_sees_the_same_task_only_when_allowed(
    make, lessons, tmp_path, same_task
):
    mine, other = history("mine", count=80, seed=1), history("other", count=60, seed=2)
    folder = written(tmp_path / "earlier", mine, other)
    options = TransferOptions(history=(folder,), records=50, same_task=same_task)
    context = make_context()
    assert make(context, options).trained
    ((features, quality_seen),) = lessons
    expected = [mine, other] if same_task else [other]
    wanted = [context.space.features(row.observations.configs) for row in expected]
    assert np.array_equal(features, np.concatenate(wanted))
    throughput = [row.observations.relative_throughput for row in expected]
    assert np.allclose(quality_seen, np.concatenate(throughput))


def test_earlier_runs_are_only_read_and_read_once(tmp_path):
    folder = written(tmp_path / "earlier", history("other"))
    before = (folder / RunFile.RECORDS).read_bytes()
    context = make_context()
    options = TransferOptions(history=(folder,), records=50)
    first = TransferModel(options, context)
    assert (folder / RunFile.RECORDS).read_bytes() == before
    # The run's other tasks find it in the archive.
    (folder / RunFile.RECORDS).unlink()
    second = TransferModel(options, attrs.evolve(context, task=task_of("second")))
    for prior in (first, second):
        prior.refresh()
        assert prior.available


def test_a_folder_without_a_run_is_an_error_at_the_start(make, tmp_path):
    with pytest.raises(RunFolderError, match="no run folder"):
        make(make_context(), TransferOptions(history=(tmp_path,)))


def test_only_features_of_both_spaces_are_used(lessons):
    def narrow(more):
        return DesignSpace(
            [Choice(name=name, options=(1, 2, 4, 8)) for name in ("tile", "unroll", more)]
        )

    context = make_context(history("other", space=narrow("theirs")), space=narrow("mine"))
    TransferModel(TRANSFER, context).refresh()
    ((features, _),) = lessons
    assert context.space.feature_names == ("tile", "unroll", "mine")
    assert np.isfinite(features[:, :2]).all()
    assert np.isnan(features[:, 2]).all()


@pytest.mark.parametrize(
    "more", [{"space": grid(*[8] * 4), "count": 60}, {"failing": np.ones(100, bool)}]
)
def test_other_knobs_and_failures_alone_teach_nothing(more):
    prior = TransferModel(TRANSFER, make_context(history("other", **more)))
    prior.refresh()
    assert not prior.available


def test_the_base_model_counts_half_after_the_half_life():
    context = make_context(history("other"))
    prior = TransferModel(TRANSFER, context)
    prior.refresh()
    features = context.space.features(context.space.first_guesses)
    whole = prior.predict(features, 0)
    assert np.allclose(prior.predict(features, 64), whole / 2)
    assert np.allclose(prior.predict(features, 128), whole / 4)
    assert (prior.predict(features, 10_000) == 0).all()
    assert whole.any()


def test_it_is_fitted_again_only_when_there_is_much_more(lessons):
    context = make_context(history("other", count=100))
    prior = TransferModel(TRANSFER, context)
    for count in (100, 110, 124, 125, 130, 160):
        context.archive.record(history("other", count=count))
        prior.refresh()
    assert [len(features) for features, _ in lessons] == [100, 125, 160]
