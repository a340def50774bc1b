"""A run folder is bound by what its measurements depend on, and by nothing else."""

import json

import attrs
import pytest
from chameleon_core._errors import (
    ChameleonError,
    ConfigError,
    ExitCode,
    PluginError,
    RunFolderError,
)
from chameleon_core._loop.run import run_pipeline
from chameleon_core._loop.start.tasks import TaskSource
from chameleon_core._pipeline.load import from_dict, load_pipeline
from chameleon_core._pipeline.yaml import dump_yaml
from chameleon_core.api import RecordStore
from chameleon_core.plugin_api import DesignSpace
from chameleon_networks._precision.section import Precision
from structlog.testing import capture_logs
from synthetic import (
    BASELINE_SECONDS,
    ModelOptions,
    RunnerOptions,
    SyntheticFrontend,
    SyntheticRunner,
    SyntheticSpace,
    synthetic_document,
    synthetic_registry,
)


@attrs.frozen(kw_only=True)
class Patient(RunnerOptions):
    """Options of a runner of which some decide nothing about times."""

    patience: float = attrs.field(default=600.0, metadata={"binds": False})
    repeats: int = 3


@attrs.frozen(kw_only=True)
class Checked(ModelOptions):
    """Options of a frontend of which one decides nothing about times."""

    compare: bool = attrs.field(default=True, metadata={"binds": False})


class Broken(SyntheticRunner):
    """Fails before its first measurement."""

    def measure(self, job):
        raise ZeroDivisionError


@pytest.fixture
def run(pipeline, plugin, log_lines):
    """Runs, and says how many measurements and comparisons that took."""

    def made(*, runner=None, model=None, kind=SyntheticRunner, **more):
        before = len(log_lines())
        plugins = [
            plugin("runners", kind, Patient),
            plugin("frontends", SyntheticFrontend, Checked),
        ]
        resolved = pipeline(
            plugins=plugins,
            runner={"name": "odd", **(runner or {})},
            model={"odd": {"operators": [[9, 9]], **(model or {})}},
            **{"budget": {"measurements": 8, "batch_size": 4}, **more},
        )
        return run_pipeline(resolved), len(log_lines()) - before

    return made


@pytest.mark.parametrize("other", [{"runner": {"patience": 5.0}}, {"model": {"compare": False}}])
def test_what_no_measurement_depends_on_may_change(run, other):
    first, _ = run()
    again, asked = run(**other)
    assert asked == 0, "the comparison of before stands as well"
    assert again.operators[0].config == first.operators[0].config
    with RecordStore.of_run(again.folder) as store:
        [(key, changed)] = other.items()
        [(name, value)] = changed.items()
        written = store.fact("pipeline")["document"][key]
        assert (written.get("odd") or written)[name] == value


def test_what_they_depend_on_may_not(run):
    run()
    with pytest.raises(RunFolderError, match=r"another pipeline: runner\.repeats") as refused:
        run(runner={"repeats": 4, "patience": 5.0})
    assert str(refused.value).endswith("runner.repeats was 3 and is 4")


def test_winners_may_be_compared_with_something_else(run):
    first, _ = run(baselines=[])
    assert first.operators[0].vendor_seconds is None
    again, asked = run(baselines=["synthetic"])
    assert asked == 1, "one comparison and no measurement"
    assert again.operators[0].vendor_seconds == BASELINE_SECONDS


def test_a_folder_of_an_earlier_version_is_bound_by_the_same(run):
    folder = run()[0].folder
    with RecordStore(folder / "records.sqlite") as store:
        stored = store.fact("finished")
        del stored["identity"]["budget"]["same_failure"]
        store.set_fact("finished", stored)
        store.set_fact("pipeline", {**store.fact("pipeline"), "digest": "of another version"})
    assert run()[1] == 0
    with pytest.raises(RunFolderError, match="seed was 0 and is 3"):
        run(seed=3)


def test_a_run_that_ended_before_its_first_measurement_binds_nothing(run):
    with pytest.raises(PluginError, match="ZeroDivisionError"):
        run(kind=Broken, seed=3)
    result, asked = run(model={"operators": [[7, 7]]})
    assert asked == 8 + 1
    assert result.operators[0].task["arguments"]["cardinalities"] == [7, 7]
    with RecordStore.of_run(result.folder) as store:
        assert len(store.tasks()) == 1, "nothing is left of the other pipeline"
    with pytest.raises(RunFolderError):
        run(seed=3)


def test_a_smaller_budget_says_so_and_keeps_what_there_is(run):
    run()
    with capture_logs() as logs:
        result, asked = run(budget={"measurements": 5, "batch_size": 4})
    assert asked == 0
    assert result.operators[0].measurements == 8
    logged = [log for log in logs if log["log_level"] == "warning"]
    assert [log["event"] for log in logged] == ["earlier_measurements_exceed_run"]
    assert (logged[0]["measurements"], logged[0]["ended"]) == (8, "the measurement budget is spent")


DAMAGES = {
    "no database": lambda _: b"this was a database",
    "amid its pages": lambda content: content[:4096] + b"\xff" * 8192 + content[12288:],
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_database_is_no_full_disk(run, tmp_path, damage):
    folder = run()[0].folder
    file = folder / "records.sqlite"
    file.write_bytes(DAMAGES[damage](file.read_bytes()))
    with pytest.raises(ChameleonError) as caught:
        run()
    assert isinstance(caught.value, RunFolderError)
    assert str(file) in str(caught.value)
    assert "move the run folder aside" in caught.value.hint
    assert "continues where" not in caught.value.hint
    assert "free space" not in caught.value.hint
    json.loads((folder / "best.json").read_text())


class Narrower(SyntheticSpace):
    """The space as a later version of its plugin makes it."""

    constraint = ""

    def design_space(self, task):
        base = super().design_space(task)
        return DesignSpace(base.knobs, first_guesses=base.first_guesses, variant=(self.constraint,))


def test_records_of_another_design_space_are_told_of(pipeline, plugin, monkeypatch, log_lines):
    def run():
        return run_pipeline(
            pipeline(plugins=[plugin("spaces", Narrower)], space="odd", operators=[[9, 9]])
        )

    run()
    monkeypatch.setattr(Narrower, "constraint", "another version")
    before = len(log_lines())
    result = run()
    assert result.exit_code is ExitCode.OK
    assert len(log_lines()) == before, "a finished run is only read"
    with RecordStore(result.folder / "records.sqlite") as store:
        store.set_fact("finished", None)
    with capture_logs() as logs:
        result = run()
    [logged] = [log for log in logs if log["event"] == "operator_tuned_anew"]
    assert (logged["task"], logged["measurements"]) == ("op0", 20)
    assert result.operators[0].measurements == 20
    assert len(log_lines()) == before + 20 + 1


class Reduced(SyntheticFrontend):
    """A frontend that says it knows a type and takes it over."""

    told = []

    def compute_in(self, precision):
        self.told.append(precision)


def test_a_frontend_is_told_of_a_reduced_precision_and_refuses_one_by_default(modelled):
    def resolved(kind, precision):
        sections = {} if precision is None else {"precision": precision}
        return attrs.evolve(modelled(kind, [[9, 9]]), sections=sections)

    run_pipeline(resolved(Reduced, None))
    assert not Reduced.told, "float32 is nothing to be told of"
    TaskSource(resolved(Reduced, Precision(type="int8"))).frontend()
    assert Reduced.told == [Precision(type="int8")]
    with pytest.raises(ConfigError, match="the model cannot be computed in int8 or bfloat16"):
        TaskSource(
            resolved(SyntheticFrontend, Precision(search=("int8", "bfloat16"), max_error=0.1))
        ).frontend()


def decoded(folder):
    with RecordStore.of_run(folder) as store:
        return {stored.task.name: store.decoded(stored.id) for stored in store.tasks()}


def test_a_fixed_knob_holds_in_everything_that_is_measured(pipeline):
    resolved = pipeline(fix={"knob0": 4, "op1": {"knob0": 2, "knob2": 1}})
    result = run_pipeline(resolved)
    measured = decoded(resolved.output)
    assert {row["knob0"] for row in measured["op0"]} == {4}
    assert {(row["knob0"], row["knob2"]) for row in measured["op1"]} == {(2, 1)}
    assert len(measured["op0"]) == 9
    assert [row["knob1"] for row in measured["op1"]] != [0] * 5
    assert result.operators[0].ended == "the space is exhausted"


def test_a_knob_that_only_some_operators_have_is_fixed_there(pipeline):
    resolved = pipeline(fix={"knob2": 3})
    run_pipeline(resolved)
    measured = decoded(resolved.output)
    assert {row["knob2"] for row in measured["op1"]} == {3}
    assert len({row["knob0"] for row in measured["op0"]}) > 1


def test_the_records_are_those_of_the_whole_space(pipeline):
    with RecordStore.of_run(run_pipeline(pipeline(fix={"knob0": 4})).folder) as store:
        fixed = {stored.fingerprint for stored in store.tasks()}
    whole = run_pipeline(pipeline(), fresh=True)
    assert fixed == {operator.fingerprint for operator in whole.operators}


def test_a_folder_is_bound_to_what_is_fixed(pipeline):
    run_pipeline(pipeline(fix={"knob0": 4}))
    with pytest.raises(RunFolderError, match=r"fix\.knob0 was 4 and is 3"):
        run_pipeline(pipeline(fix={"knob0": 3}))
    with pytest.raises(RunFolderError, match=r"fix\.knob0 was 4 and is not set"):
        run_pipeline(pipeline())


FILE = """\
model: {synthetic: {operators: [[7, 9], [5, 5, 5]]}}
fix:
  knob0: 4
  knop1: 1
  op1: {knob2: 9}
  op2:
    knob1: 0
"""


def test_mistakes_are_located(tmp_path):
    rest = synthetic_document(tmp_path / "run")
    overrides = [f"{key}={rest[key]!r}" for key in rest if key != "model"]
    file = tmp_path / "mine.yaml"
    file.write_text(FILE)
    registry = synthetic_registry()
    with pytest.raises(ConfigError) as caught:
        run_pipeline(load_pipeline(file, overrides, registry=registry))
    assert str(caught.value).splitlines() == [
        f"{file}:4:10: no operator has a knob 'knop1'; did you mean 'knob1'?",
        f"{file}:5:16: operator 'op1': knob 'knob2' has no value 9; its values are 0, 1, 2, 3, 4",
        f"{file}:7:12: there is no operator 'op2'; did you mean 'op1'?",
    ]


@pytest.mark.parametrize(
    ("fix", "said"),
    [
        ([1], "'fix' must be a mapping of knobs to values, not a list"),
        ({"knob0": None}, "fix.knob0: knob 'knob0' is fixed to no value"),
        ({"op0": {"knob0": {"a": 1}}}, "fix.op0.knob0: knob 'knob0' is fixed to no value"),
    ],
)
def test_what_is_no_value_is_refused_when_it_is_read(pipeline, fix, said):
    with pytest.raises(ConfigError, match=said):
        pipeline(fix=fix)


def test_it_is_written_out_and_read_again(pipeline, tmp_path):
    resolved = pipeline(fix={"knob0": 4, "op1": {"knob2": 1}})
    assert from_dict(resolved.document, registry=synthetic_registry()).fix == resolved.fix
    assert "fix:\n  knob0: 4\n" in dump_yaml(dict(resolved.document))
    assert "fix" not in pipeline(fix={}).document
