"""Files become tables: knobs, legality, units, failures; and what is wrong is a sentence."""

import gzip
import json
import shutil

import numpy as np
import pytest
from chameleon_core._errors import ChameleonError, ConfigError
from chameleon_core._measurement import FailureKind, Measurement
from chameleon_core.plugin_api import NoOptions
from chameleon_runners._replay.readers import table_of_task, tables_at
from chameleon_runners._replay.stages import TableSpace
from chameleon_runners._replay.table import make_table
from chameleon_testing.conformance import check_space_provider

from .conftest import tasks_of, tiny_cache


def _space(task):
    return TableSpace(NoOptions()).design_space(task)


def test_a_parameter_with_several_values_is_a_knob_in_ascending_order(tiny):
    (task,) = tasks_of(tiny)
    space = _space(task)
    assert [(knob.name, knob.options) for knob in space.knobs] == [
        ("x", (4, 8, 16, 32)),
        ("y", (1, 2, 4)),
    ]
    assert space.feature_names == ("x", "y")
    np.testing.assert_allclose(space.features([[2, 1]]), np.log2([[17, 3]]), rtol=1e-6)


def test_only_what_was_recorded_is_legal(tiny):
    (task,) = tasks_of(tiny)
    space = _space(task)
    grid = np.array([[x, y] for x in range(4) for y in range(3)], np.int32)
    recorded = [f"{c['x']},{c['y']},15" in tiny_cache()["cache"] for c in map(space.decode, grid)]
    assert space.legal(grid).tolist() == recorded
    assert sum(recorded) == 10
    check_space_provider(lambda: TableSpace(NoOptions()), task)


def test_milliseconds_become_seconds_and_failures_their_kind(tiny):
    (task,) = tasks_of(tiny)
    table = table_of_task(task)
    good = table.measurement((2, 1), repeats=True)
    assert good.seconds == pytest.approx([8.0e-3, 8.1e-3, 8.2e-3, 8.3e-3, 8.4e-3])
    assert good.cost == pytest.approx(8.2e-3)
    # The recorded search's own time (strategy_time) is not part of a measurement.
    assert (good.build_seconds, good.run_seconds) == pytest.approx((1.0, 0.111))
    compiled, ran = (table.measurement(config) for config in ((3, 2), (3, 1)))
    assert (compiled.failure, compiled.build_seconds) == (FailureKind.BUILD_ERROR, 0.5)
    assert (ran.failure, ran.build_seconds) == (FailureKind.RUN_ERROR, 0.25)
    assert "RuntimeFailedConfig" in ran.message
    assert task.flop == pytest.approx(2.0)


def test_a_task_is_its_content_wherever_it_lies(tiny, tmp_path):
    (here,) = tasks_of(tiny)
    (tmp_path / "elsewhere").mkdir()
    moved = shutil.copy(tiny, tmp_path / "elsewhere" / "tiny.json.gz")
    plain = tmp_path / "tiny.json"
    plain.write_bytes(gzip.decompress(tiny.read_bytes()))
    for other in (moved, plain):
        (there,) = tasks_of(other)
        assert there.key == here.key
        assert there.location != here.location


def test_tables_of_one_name_get_names_of_their_own(tiny, tmp_path):
    changed = tiny_cache()
    changed["cache"].popitem()
    other = tmp_path / "more"
    other.mkdir()
    (other / "tiny.json").write_text(json.dumps(changed))
    assert [task.name for task in tasks_of(tiny, other / "tiny.json")] == ["tiny", "tiny-2"]


def test_t4_files_are_read(tmp_path):
    def row(x, invalidity, runtimes):
        return {
            "configuration": {"x": x, "y": "small"},
            "times": {"compilation": 100.0, "benchmark": 20.0, "runtimes": runtimes},
            "invalidity": invalidity,
            "measurements": [{"name": "time", "value": 3.0, "unit": "ms"}],
        }

    file = tmp_path / "t4.json"
    rows = [row(1, "correct", [2.0, 3.0, 4.0]), row(2, "compile", []), row(4, "runtime", [])]
    file.write_text(json.dumps({"results": rows, "schema_version": "1.0.0"}))
    (table,) = tables_at(str(file))
    outcomes = [table.measurement((index,), repeats=True) for index in range(3)]
    assert outcomes[0].seconds == pytest.approx((2e-3, 3e-3, 4e-3))
    assert (outcomes[0].build_seconds, outcomes[0].run_seconds) == pytest.approx((0.1, 0.02))
    assert [o.failure for o in outcomes[1:]] == [FailureKind.BUILD_ERROR, FailureKind.RUN_ERROR]


def test_a_cache_that_kernel_tuner_never_closed_is_read(tiny, tmp_path):
    text = json.dumps(tiny_cache())
    file = tmp_path / "open.json"
    file.write_text(text.removesuffix("}}") + ",\n")
    (table,) = tables_at(str(file))
    assert len(table.configs) == 10


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "cannot be read"),
        (b"\x1f\x8bno gzip", "cannot be read"),
        (b"\xff\xfe\x00", "cannot be read"),
        (b"[1, 2]", "neither a Kernel Tuner cache nor a T4 file"),
        (b'{"tune_params_keys": ["x"], "cache": {}}', "has no row"),
        (b'{"tune_params_keys": ["x"], "cache": {"1": {"x": 1}}}', "lacks 'time'"),
        (b'{"tune_params_keys": ["x"], "cache": {"1": {"time": 1.0}}}', "lacks 'x'"),
        (b'{"results": []}', "has no row"),
        (b'{"results": [{"configuration": {"x": 1}, "times": {}}]}', "lacks 'invalidity'"),
    ],
)
def test_a_broken_file_is_a_sentence_with_a_next_step(tmp_path, content, says):
    file = tmp_path / "broken.json"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=says) as caught:
        tasks_of(file)
    assert caught.value.hint


def test_missing_files_and_folders_without_a_run_are_sentences(tmp_path):
    with pytest.raises(ConfigError, match="there is no table at"):
        tasks_of(tmp_path / "absent.json.gz")
    with pytest.raises(ChameleonError, match="is no run folder"):
        tasks_of(tmp_path)


def test_a_table_that_changed_under_its_task_is_noticed(tiny):
    (task,) = tasks_of(tiny)
    changed = tiny_cache()
    changed["cache"].popitem()
    tiny.write_text(json.dumps(changed))
    with pytest.raises(ConfigError, match="no longer holds the table"):
        table_of_task(task)


def test_tables_of_one_configuration_and_of_texts_have_a_space():
    first = make_table("one", "d", {"x": [3]}, [Measurement(config=(), seconds=(1.0,))])
    assert len(first.space().all_legal) == 1
    mixed = make_table(
        "mixed", "d", {"x": [1, "auto"]}, [Measurement(config=(), seconds=(1.0,))] * 2
    )
    assert mixed.knobs[0].options == ("1", "auto")


def test_of_two_rows_of_one_configuration_the_first_counts():
    outcomes = [Measurement(config=(), seconds=(value,)) for value in (1.0, 2.0, 3.0)]
    table = make_table("twice", "d", {"x": [1, 2, 1]}, outcomes)
    assert len(table.configs) == 2
    assert table.measurement((0,)).seconds == (1.0,)


@pytest.mark.parametrize(
    ("name", "sizes", "best"),
    [
        ("convolution_A100", (7, 4362, 4201), 0.554e-3),
        ("convolution_RTX_2080_Ti", (6, 6768, 5256), 0.900e-3),
        ("convolution_W6600", (7, 4362, 4362), 1.73e-3),
    ],
)
def test_recorded_tables_have_the_published_size(recorded, name, sizes, best):
    (task,) = tasks_of(recorded(name))
    table = table_of_task(task)
    space = table.space()
    valid = int(np.isfinite(table.recorded).sum())
    assert (len(space.knobs), len(space.all_legal), valid) == sizes
    assert table.recorded.min() == pytest.approx(best, rel=0.01)
