"""Suite files: what they may say, and errors that say where."""

import pytest
from chameleon_bench._suites.load import load_suite
from chameleon_core._errors import ConfigError
from chameleon_core._pipeline.nodes import PipelineError

GOOD = """\
pipelines:
  small: {budget: {batch_size: 4}}
  large: {budget: {batch_size: 8}}
  other: {rival: synthetic}
tasks:
  - model: {synthetic: {operators: [[5, 5]]}}
  - {name: two, model: {synthetic: {operators: [[7, 7]]}}, budget: {measurements: 9}}
seeds: 3
budget: {measurements: 20}
runner: synthetic
"""


def problems(load, text, *overrides):
    with pytest.raises(PipelineError) as caught:
        load(text, *overrides)
    return [str(row).partition("suite.yaml:")[2] or str(row) for row in caught.value.problems]


def test_cells_are_pipelines_times_tasks_times_seeds(load):
    suite = load(GOOD)
    assert suite.pipelines == ["small", "large", "other"]
    assert suite.tasks == ["synthetic", "two"]
    cells = list(suite.cells())
    assert len({cell.folder for cell in cells}) == len(cells) == 18
    assert [cell.seed for cell in cells] == [0] * 6 + [1] * 6 + [2] * 6
    assert {cell.document["seed"] for cell in cells[6:12]} == {1}


def test_a_pipeline_overrules_the_suite_and_a_task_the_pipeline(load):
    pairings = {(row.pipeline, row.task): row for row in load(GOOD).pairings}
    budget = pairings["large", "two"].document["budget"]
    assert (budget["batch_size"], budget["measurements"]) == (8, 9)
    assert pairings["small", "synthetic"].measurements == 20


def test_the_runner_says_whether_a_cell_is_live_and_a_rival_always_is(load):
    measures_hardware = {
        row.pipeline: row.measures_hardware
        for row in load(GOOD, "runner=synthetic-replay").pairings
    }
    assert measures_hardware == {"small": False, "large": False, "other": True}
    assert all(row.measures_hardware for row in load(GOOD).pairings)


def test_seeds_may_be_listed_and_overruled(load):
    assert load(GOOD, "seeds=[4, 7]").seeds == (4, 7)


def test_comparisons_with_baselines_are_made_on_request_only(load):
    text = GOOD + "baselines: [synthetic]\n"
    assert load(text).pairings[0].document["baselines"] == []
    assert load(text, "compare=true").pairings[0].document["baselines"] == [{"name": "synthetic"}]


def test_no_cell_looks_into_record_databases(load, monkeypatch):
    monkeypatch.setenv("CHAMELEON_RECORDS", "")
    text = GOOD.replace("small: {", "small: {records: none, ")
    assert not any("records" in row.document for row in load(text).pairings)


def test_every_mistake_is_told_once_and_with_its_place(load, tmp_path):
    text = """\
pipelines:
  small: {explorer: synthetik}
  large: {budget: {batchsize: 8}}
  seeded: {seed: 3}
  bad name: {}
  other: {rival: syntetic}
tasks:
  - model: {synthetic: {operators: [[5, 5]]}}
  - {name: two, model: {synthetic: {operators: [[7, 7]]}}}
  - {table: nowhere.json}
  - {table: a.json, model: {}}
seds: 3
seeds: 0
runner: synthetic
"""
    output = problems(load, text)
    where = "say where the tables are with 'data' or --set data=FOLDER"
    sources = "a task has one key that says what is tuned, 'table', 'operator' or 'model'"
    assert output == [
        "2:21: unknown explorer 'synthetik'; did you mean 'synthetic'?",
        "3:20: unknown option 'batchsize' for 'budget'; did you mean 'batch_size'?",
        "4:12: 'seed' belongs to the suite and not to pipeline 'seeded'",
        "5:3: pipeline 'bad name' must be named with letters, digits, '-', '_', '.' and '+'",
        "6:18: unknown rival 'syntetic'; did you mean 'synthetic'?",
        f"10:13: there is no table {tmp_path / 'nowhere.json'}; {where}",
        f"11:5: {sources}, not table and model",
        "12:1: unknown key 'seds'; did you mean 'seeds'?",
        "13:8: 'seeds' must be a number of at least 1, or a list of seeds",
    ]


def test_two_tasks_of_one_name_are_told_apart_by_their_writer(load):
    text = GOOD.replace("name: two", "name: synthetic")
    assert problems(load, text) == [
        "7:5: two tasks are called 'synthetic'; give one of them another 'name'"
    ]


@pytest.mark.parametrize("missing", ["pipelines", "tasks"])
def test_a_suite_without_pipelines_or_tasks_says_so(load, missing):
    lines = GOOD.splitlines(keepends=True)
    start = lines.index(f"{missing}:\n")
    end = next(i for i in range(start + 1, len(lines)) if not lines[i].startswith(" "))
    text = "".join(lines[:start] + lines[end:])
    assert problems(load, text)[0].startswith(f"1:1: a suite needs '{missing}'")


def test_a_table_lies_in_the_data_folder(load, tmp_path):
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "conv.json.gz").touch()
    text = "pipelines: {a: {}}\ntasks: [{table: conv.json.gz}]\n"
    output = problems(load, text, f"data={tmp_path / 'tables'}")
    # It is found, and the synthetic plugins have no tables: everything else is right.
    assert [row.partition("unknown ")[2].partition(" '")[0] for row in output] == [
        "frontend",
        "runner",
        "space",
    ]


def test_a_missing_file_is_a_sentence(load, tmp_path):
    with pytest.raises(ConfigError, match="there is no such file"):
        load_suite(tmp_path / "none.yaml")


def test_a_score_needs_recorded_spaces_and_sets_the_budget(load):
    text = GOOD.replace("  other: {rival: synthetic}\n", "")
    with pytest.raises(ConfigError, match="only a task that is one recorded table has a score"):
        load(text, "score=true")
    suite = load(text, "score=true", "runner=synthetic-replay")
    budgets = {task: space.budget for task, space in suite.spaces.items()}
    assert {(row.task, row.measurements) for row in suite.pairings} == set(budgets.items())
    assert suite.spaces["synthetic"].size == 25
