"""Commands and Python of docs that no quicker test runs, on a small network and one operator.

The pages name a ResNet-18, a run ``conv`` and data of the reader; small ones stand in for these.
"""

import sys

import chameleon_core as cc
import pytest
from chameleon_cli._main import run
from chameleon_core._errors import ExitCode
from doc_pages import PYTHON, ROOT, commands_of
from programs import completed

pytestmark = pytest.mark.long

NETWORK = "model: {builtin: {network: resnet_small, compare: false}}\nbudget: {measurements: 0}\n"
DATA = "import numpy as np\n\ndef batches():\n    yield np.ones((1, 3, 32, 32), 'float32')\n"
CONV = {"name": "conv", "input": [1, 3, 32, 32], "filters": 16, "kernel": 3, "bias": True}
NAMES = """
import numpy as np, onnx, sys
from onnx import TensorProto, helper
image = images = np.ones((1, 3, 32, 32), "float32")
weights, bias = np.ones((16, 3, 3, 3), "float32"), np.zeros(16, "float32")
value = helper.make_tensor_value_info
node = helper.make_node("Relu", ["x"], ["y"])
ends = [value("x", TensorProto.FLOAT, [2])], [value("y", TensorProto.FLOAT, [2])]
model = helper.make_model(helper.make_graph([node], "relu", *ends))
inputs = [np.ones(2, "float32")]
"""
"""Names that blocks of Python read and do not define."""
FRESH = """
for name in ("load", "pack", "library", "machine"):
    sys.modules.pop(name, None)
"""
"""Each folder that a page loads has modules of these names."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the runs and files that the pages name."""
    path = tmp_path_factory.mktemp("pages")
    (path / "benchmarks").symlink_to(ROOT / "benchmarks")
    (path / "resnet18.yaml").write_text(NETWORK + "output: runs/yaml\n")
    (path / "net.yaml").write_text(NETWORK + "output: runs/net\n")
    (path / "data.py").write_text(DATA)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(path)
        more = ("output=runs/resnet18", "budget.measurements=1")
        assert run(["run", "net.yaml", "--set", more[0], "--set", more[1]]) == ExitCode.OK
        budget, operator = {"measurements": 2}, {"operators": [{"conv2d": CONV}]}
        cc.tune(model=operator, budget=budget, baselines=[], output="runs/conv", progress=False)
        yield path


def quick(words):
    """A command line on the run of the fixture, with little work: nobody looks at its figures."""
    more = ["--rounds", "2"] if words[0] == "bench-network" else []
    more += ["--seconds", "0.1"] if "--streams" in words else []
    return [word.replace("RUN", "runs/resnet18") for word in words] + more


# The data set of the last page is merged by a command of the page before.
PAGES = [
    *("README", "docs/networks", "docs/deliver", "docs/report"),
    *("docs/torch-compile", "docs/suites", "docs/one-shot", "docs/dataset"),
    "packages/chameleon-records/README",
]
# Other tests run the examples; the rest takes hours, data of the reader, or rivals' tools for int8.
LEFT_OUT = (
    *("examples/", "dataset collect", "pretrain", "evaluate-predictor", "my.safetensors"),
    "--precision int8",
)


@pytest.mark.timeout(1800)
def test_commands_and_python_run_in_the_order_of_their_pages(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    for file in [ROOT / f"{page}.md" for page in PAGES]:
        for words in commands_of(file):
            if not any(text in " ".join(words) for text in LEFT_OUT):
                assert run(quick(words)) == ExitCode.OK, (file, words, capsys.readouterr().err)
        blocks = PYTHON.findall(file.read_text())
        path = "import sys; sys.path.append('runs/resnet18/network')"
        script = FRESH.join([f"{path}\n{NAMES}", *blocks])
        completed([sys.executable, "-c", script])
