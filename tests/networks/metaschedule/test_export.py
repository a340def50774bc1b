"""``chameleon export``: what TVM alone makes of a run's winners."""

import contextlib
import io
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from chameleon_cli._main import run
from chameleon_core._task import Task
from chameleon_core.api import RecordStore
from chameleon_tvm._operators.base import operator_of

DENSE = {"dense": {"name": "small", "input": [16, 32], "units": 48}}
APPLY = """
import sys
sys.modules["torch"] = None  # TVM starts faster without it
import numpy as np
import tvm
from tvm.s_tir import meta_schedule as ms

folder = sys.argv[1]
target = tvm.target.Target(sys.argv[2])
database = ms.database.JSONDatabase(work_dir=folder)
arrays = [np.load(f"{folder}/{place}.npy") for place in range(3)]
for record in database.get_all_tuning_records():
    module = record.workload.mod
    schedule = ms.tir_integration.compile_tir(database, module, target)
    built = tvm.compile(schedule.mod, target=target)
    given = [tvm.runtime.tensor(array) for array in arrays]
    built["main"](*given)
    error = abs(given[-1].numpy() - np.load(f"{folder}/want.npy")).max()
    print(str(schedule.mod) != str(module), error)
print([name for name in sys.modules if name.startswith("chameleon")])
"""
RUN_TEXT = """
import sys
sys.modules["torch"] = None  # TVM starts faster without it
import numpy as np
import tvm

folder, name = sys.argv[1:3]
sys.path.insert(0, folder)
module = __import__(name)
built = tvm.compile(module.main, target=tvm.target.Target(sys.argv[3]))
shapes = [tuple(int(e) for e in p.shape) for p in module.main.params]
print(shapes)
given = [tvm.runtime.tensor(np.ones(shape, "float32")) for shape in shapes]
built["main"](*given)
print(given[-1].numpy().min(), given[-1].numpy().max())
print([name for name in sys.modules if name.startswith("chameleon")])
"""


def _chameleon(*words):
    """Exit code, stdout and stderr of the command line, in this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run([str(word) for word in words])
    return code, out.getvalue(), err.getvalue()


def _run(folder, space):
    pipeline = {
        "model": {"operators": [DENSE]},
        "target": "native",
        "space": space,
        "runner": {"name": "local", "workers": 1},
        "baselines": [],
        "budget": {"measurements": 4, "batch_size": 4},
        "output": str(folder / "run"),
    }
    (folder / "p.yaml").write_text(json.dumps(pipeline))
    code, _, stderr = _chameleon("run", folder / "p.yaml", "--json")
    assert code == 0, stderr
    return folder / "run"


@pytest.fixture(scope="module")
def sketched(tmp_path_factory):
    """A run in the sketch space."""
    return _run(tmp_path_factory.mktemp("sketch"), "sketch")


@pytest.fixture(scope="module")
def templated(tmp_path_factory):
    """A run with templates."""
    return _run(tmp_path_factory.mktemp("template"), "template")


def _task(run):
    [operator] = json.loads((run / "best.json").read_text())["operators"]
    return Task(**operator["task"])


@pytest.mark.full
def test_tvm_alone_applies_the_database(sketched, tmp_path, run_python):
    folder = tmp_path / "database"
    words = ("export", sketched, "--to", "metaschedule", "-o", folder)
    code, stdout, stderr = _chameleon(*words, "--json")
    assert code == 0, stderr
    assert json.loads(stdout)["tasks"] == ["small"]
    assert "rewrite_sums: false" in stderr
    task = _task(sketched)
    operator = operator_of(task)
    inputs = operator.inputs()
    [want] = operator.reference(inputs)
    for number, array in enumerate([*operator.arrange(inputs), np.zeros((16, 48), "float32")]):
        np.save(folder / f"{number}.npy", array)
    np.save(folder / "want.npy", want)
    *lines, modules = run_python(APPLY, folder, task.target).splitlines()
    assert len(lines) == 2, "with and without packed weights"
    for line in lines:
        scheduled, error = line.split()
        assert scheduled == "True"
        assert float(error) < 1e-4
    assert modules == "[]"
    code, _, stderr = _chameleon(*words)
    assert code == 2
    assert "already" in stderr


def test_templates_are_no_traces(templated, tmp_path):
    code, _, stderr = _chameleon("export", templated, "--to", "metaschedule", "-o", tmp_path / "d")
    assert code == 2
    assert "templates are no MetaSchedule traces: small cannot" in stderr
    assert "space: sketch" in stderr
    assert not (tmp_path / "d").exists()


def test_what_searched_need_not_be_installed(templated, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(templated, folder)
    with RecordStore(folder / "records.sqlite") as store:
        fact = store.fact("pipeline")
        gone = {"explorer": {"name": "gone", "chains": 7}, "cost_model": {"name": "gone"}}
        store.set_fact("pipeline", {**fact, "document": {**fact["document"], **gone}})
    code, _, stderr = _chameleon("export", folder, "--to", "tvmscript", "-o", tmp_path / "text")
    assert code == 0, stderr
    with RecordStore(folder / "records.sqlite") as store:
        model = {"gone": {}}
        store.set_fact("pipeline", {**fact, "document": {**fact["document"], "model": model}})
    code, _, stderr = _chameleon("export", folder, "--to", "tvmscript", "-o", tmp_path / "more")
    assert code == 2
    assert "unknown frontend 'gone'" in stderr


@pytest.mark.full
@pytest.mark.parametrize("space", ["sketched", "templated"])
def test_tvm_alone_runs_the_exported_text(space, tmp_path, request, run_python):
    folder = request.getfixturevalue(space)
    words = ("export", folder, "--to", "tvmscript", "-o", tmp_path / "text")
    code, stdout, stderr = _chameleon(*words)
    assert code == 0, stderr
    assert stdout.splitlines() == [str(tmp_path / "text" / "small.py")]
    words = (tmp_path / "text", "small", _task(folder).target)
    shapes, values, modules = run_python(RUN_TEXT, *words).splitlines()
    assert shapes.count("(") == 3
    assert values == "32.0 32.0", "sums of 32 products of ones"
    assert modules == "[]"


def test_operators_can_be_chosen(templated, tmp_path):
    words = ("export", templated, "--to", "tvmscript", "-o", tmp_path / "text", "--task", "smal")
    code, _, stderr = _chameleon(*words)
    assert code == 2
    assert "no measured operator 'smal'; did you mean 'small'?" in stderr
    assert _chameleon("export", tmp_path, "--to", "tvmscript", "-o", tmp_path)[0] == 2


def test_an_operator_is_delivered_with_its_loader(templated, tmp_path):
    code, stdout, stderr = _chameleon(
        "export", templated, "--to", "library", "-o", tmp_path, "--json"
    )
    assert code == 0, stderr
    assert (tmp_path / "load.py").exists(), "it lies where a network would"
    assert json.loads(stdout)["tasks"] == ["small"]
    assert "random weights until pack.py" in stderr
    names = {Path(file).name for file in json.loads(stdout)["files"]}
    assert names >= {"kernel.so", "load.py", "manifest.json", "pack.py", "weights.bin"}
    code, _, stderr = _chameleon("export", templated, "--to", "library", "-o", tmp_path)
    assert code == 2
    assert "already" in stderr
    assert (tmp_path / "load.py").exists(), "what was there stays"


@pytest.mark.full
def test_an_operator_is_a_bundle_for_c(templated, tmp_path):
    code, stdout, stderr = _chameleon(
        "export", templated, "--to", "c", "-o", tmp_path / "x", "--json"
    )
    assert code == 0, stderr
    files = {Path(file) for file in json.loads(stdout)["files"]}
    names = ("libx.so", "x.h", "main.cpp", "CMakeLists.txt", "weights.bin")
    assert files >= {tmp_path / "x" / name for name in names}
    words = ("-o", tmp_path / "y", "--name", "mine")
    assert _chameleon("export", templated, "--to", "c", *words)[0] == 0
    assert (tmp_path / "y" / "libmine.so").exists()
    code, _, stderr = _chameleon("export", templated, "--to", "library", *words)
    assert code == 2
    assert "--name is for one bundle for C" in stderr
