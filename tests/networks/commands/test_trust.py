"""Run folders of strangers are data: nothing that they name or carry is run unasked."""

import contextlib
import json
import sqlite3

import pytest
from chameleon_core import load_run
from chameleon_core._measurement import Measurement, Spending
from chameleon_core._task import Task
from chameleon_core.api import RecordStore
from chameleon_one_shot._dataset.format import read_dataset
from chameleon_one_shot._predictor.examples import examples_of
from chameleon_records._format import key_from_json
from chameleon_tvm._operators.primfunc_spec import PrimFuncSpec
from chameleon_tvm._spaces.sketch.options import SketchOptions
from chameleon_tvm._spaces.sketch.provider import SketchSpace
from chameleon_tvm.api import DenseSpec

FUNCTION = """
from tvm import te

def product():
    a = te.placeholder((8, 16), "float32", name="a")
    b = te.placeholder((16, 32), "float32", name="b")
    k = te.reduce_axis((0, 16), name="k")
    c = te.compute((8, 32), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")
    return te.create_prim_func([a, b, c])

def reference(a, b):
    return a @ b
"""


@pytest.fixture
def marker(tmp_path, monkeypatch):
    """What is there if the payload was run; the folder of the payload is the working folder."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "marker"
    payload = f"open({str(file)!r}, 'w').close()\n"
    (tmp_path / "evil.py").write_text(f"{payload}def make():\n    return None\n")
    return file


def _configs(task):
    guesses = SketchSpace(SketchOptions()).design_space(task).first_guesses
    return [tuple(config) for config in guesses[:2].tolist()]


def _folder(folder, model, target, *tasks, **more):
    """A run folder as somebody else may have written it."""
    folder.mkdir()
    (folder / "network").mkdir()
    document = {"model": model, "space": {"name": "sketch"}, **more}
    with RecordStore(folder / "records.sqlite") as store:
        store.set_fact("pipeline", {"digest": "", "document": document})
        store.set_fact("target", target)
        for task in tasks:
            row = store.add_task(task, "sketch", "fingerprint").id
            for number, config in enumerate(_configs(task)):
                measured = Measurement(config=config, seconds=(1.0,))
                store.add(row, number, measured, knobs={"knob": number}, spending=Spending())
    return folder


INT8 = {"type": "int8", "calibrate": "evil.py:make"}
MODELS = [
    ({"torch": {"source": "evil.py:make"}}, {}, "evil.py:make"),
    ({"torch": {"source": "evil:make"}}, {}, "evil:make"),
    ({"torch": {"source": "evil.pt2"}}, {}, "evil.pt2"),
    ({"builtin": {"network": "resnet_small"}}, {"precision": INT8}, "evil.py:make"),
]


@pytest.mark.parametrize("case", MODELS)
@pytest.mark.parametrize(
    "command", ["compile", "bench-network", "export RUN --to metaschedule -o out"]
)
def test_code_that_a_run_folder_names_is_not_imported(chameleon, marker, target, command, case):
    model, more, named = case
    dense = DenseSpec(name="small", input=(16, 32), units=48).task("small", target)
    folder = _folder(marker.parent / "run", model, target, dense, **more)
    name, *words = command.replace("RUN ", "").split()
    finished = chameleon(name, folder, *words)
    assert finished.returncode == 2, finished.stderr
    error, hint = finished.stderr.splitlines()
    assert f"{folder} names code that would be imported and run: " in error
    assert named in error
    assert "--trust-source" in hint
    assert not marker.exists()


def test_a_flag_has_it_imported(chameleon, marker, target):
    folder = _folder(marker.parent / "run", MODELS[0][0], target)
    finished = chameleon("compile", folder, "--trust-source")
    assert finished.returncode == 2
    assert "evil.py:make returned a NoneType instead of a pair" in finished.stderr
    assert marker.exists()


def _function_task(marker, target):
    """A function whose reference is a payload."""
    source = marker.parent / "function.py"
    source.write_text(FUNCTION)
    spec = PrimFuncSpec(name="f", source=f"{source}:product", reference=f"{source}:reference")
    task = spec.task("f", target).to_json()
    payload = f"open({str(marker)!r}, 'w').close()\n{FUNCTION}"
    arguments = {**task["arguments"], "reference": {"text": payload, "function": "reference"}}
    return Task(**{**task, "arguments": arguments})


@pytest.mark.parametrize("form", ["library", "c"])
def test_a_function_of_a_run_folder_is_not_compiled(chameleon, marker, target, form):
    model = {"operators": [{"dense": {"input": [16, 32], "units": 48}}]}
    folder = _folder(marker.parent / "run", model, target, _function_task(marker, target))
    words = ("export", folder, "--to", form, "-o", marker.parent / "out")
    finished = chameleon(*words)
    assert finished.returncode == 2, finished.stderr
    error, hint = finished.stderr.splitlines()
    assert f"task 'f' of {folder} carries code" in error
    assert "--trust-source" in hint
    assert not (marker.parent / "out").exists()
    finished = chameleon(*words, "--trust-source")
    assert "carries code" not in finished.stderr
    assert not marker.exists(), "a reference is for those who measure"


def test_commands_that_show_a_run_run_nothing(chameleon, marker, target):
    task = _function_task(marker, target)
    folder = _folder(marker.parent / "run", MODELS[0][0], target, task)
    for words in (
        ["status", folder],
        ["best", folder],
        ["report", folder],
        ["runs", marker.parent],
    ):
        finished = chameleon(*words)
        assert finished.returncode == 0, finished.stderr
    assert load_run(folder).only.name == "f"
    chameleon("records", "add", folder, "--to", marker.parent / "records.sqlite")
    assert chameleon("dataset", "import", folder, "--to", marker.parent / "data").returncode == 0
    assert chameleon("dataset", "check", marker.parent / "data").returncode in {0, 1}
    assert len(examples_of(read_dataset(marker.parent / "data"))) == 1, "what a predictor learns"
    assert not marker.exists()


@pytest.fixture
def task_file(marker, target):
    """A file with a task that carries code, and a pipeline that reads it."""
    task = _function_task(marker, target)
    file = marker.parent / "tasks.json"
    file.write_text(json.dumps([task.to_json()]))
    pipeline = {
        "model": {"tasks": {"file": str(file)}},
        "target": "native",
        "space": "sketch",
        "baselines": [],
        "runner": {"name": "local", "workers": 1},
        "budget": {"measurements": 1},
        "output": str(marker.parent / "run"),
    }
    (marker.parent / "p.yaml").write_text(json.dumps(pipeline))
    return file


def test_a_task_file_runs_nothing_unasked(chameleon, marker, task_file):
    finished = chameleon("run", marker.parent / "p.yaml", "--json")
    assert finished.returncode == 2, finished.stderr
    assert f"task 'f' of {task_file} carries code" in finished.stderr
    assert "trust_source: true" in finished.stderr
    assert not marker.exists()


@pytest.mark.full
@pytest.mark.usefixtures("task_file")
def test_a_task_file_runs_its_code_if_asked_to(chameleon, marker):
    words = ("--json", "--set", "model.tasks.trust_source=true")
    finished = chameleon("run", marker.parent / "p.yaml", *words)
    assert finished.returncode == 0, finished.stderr
    assert marker.exists()


@pytest.mark.full
def test_a_record_database_runs_nothing(chameleon, marker):
    file, records = marker.parent / "function.py", marker.parent / "records.sqlite"

    def tuned(name, text):
        file.write_text(text)
        source = {"source": f"{file}:product", "reference": f"{file}:reference"}
        pipeline = {
            "model": {"operators": [{"primfunc": source}]},
            "target": "native",
            "space": "sketch",
            "runner": {"name": "local", "workers": 1},
            "records": str(records),
            "baselines": [],
            "budget": {"measurements": 1},
            "output": str(marker.parent / name),
        }
        (marker.parent / "p.yaml").write_text(json.dumps(pipeline))
        finished = chameleon("run", marker.parent / "p.yaml", "--json")
        assert finished.returncode == 0, finished.stderr

    tuned("first", FUNCTION)
    payload = f"open({str(marker)!r}, 'w').close()"
    with contextlib.closing(sqlite3.connect(records)) as database, database:
        [(text,)] = database.execute("SELECT key FROM keys").fetchall()
        key = json.loads(text)
        key["arguments"]["reference"]["text"] = f"{payload}\n{FUNCTION}"
        values = (json.dumps(key), key_from_json(key).digest)
        database.execute("UPDATE keys SET key = ?, digest = ?", values)
    scaled = FUNCTION.replace("te.sum(a", "te.sum(2 * a").replace("return a", "return 2 * a")
    tuned("second", scaled)
    for words in (
        ["list", records],
        ["merge", marker.parent / "more.sqlite", records],
        ["export", marker.parent / "all.jsonl", "--from", records],
        ["export", marker.parent / "all.csv", "--from", records, "--to", "csv"],
    ):
        finished = chameleon("records", *words)
        assert finished.returncode == 0, finished.stderr
    assert not marker.exists()


def test_names_of_a_run_folder_do_not_become_python(chameleon, marker, target):
    model = {"operators": [{"dense": {"input": [16, 32], "units": 48}}]}
    name = f"small\nopen({str(marker)!r}, 'w').close()\n"
    dense = DenseSpec(name="small", input=(16, 32), units=48).task(name, target)
    task = Task(**{**dense.to_json(), "name": name})
    folder = _folder(marker.parent / "run", model, target, task)
    finished = chameleon("export", folder, "--to", "tvmscript", "-o", marker.parent / "text")
    assert finished.returncode == 0, finished.stderr
    [file] = (marker.parent / "text").iterdir()
    header = file.read_text().partition("from tvm")[0]
    assert "open(" in header
    assert all(line.startswith("#") for line in header.splitlines() if line)
