"""A network whose choices differ from its framework's only in near ties is right."""

import json

import numpy as np
import pytest
from chameleon_cli._main import run as command_line
from chameleon_core._errors import ExitCode
from chameleon_networks._checks.error_search import ErrorSearch
from chameleon_networks._checks.near_ties import second_verdict
from chameleon_networks._compile.unsupported_operator import empty_kernels
from chameleon_networks._evaluation.verify import Expected
from chameleon_networks._importers.options import OnnxOptions
from chameleon_networks._importers.sources import OnnxNetwork
from marks import full

from ..onnx_files import onnx_file  # noqa: TID252 - shared by folders

pytestmark = pytest.mark.usefixtures("forked_networks")

TEXT = """(float[64] x) => (float[3] best, float[3, 4] rows, int64[] worst) {
    k = Constant<value = int64[1] {3}>()
    scores = Mul(x, ones)
    best, index = TopK(scores, k)
    found = Gather(table, index)
    rows = Tanh(found)
    worst = ArgMin<axis = 0, keepdims = 0>(scores)
}"""

TABLE = np.random.default_rng(0).standard_normal((64, 4)).astype(np.float32)
SCORES = np.linspace(1, 2, 64, dtype=np.float32)
SCORES[[7, 9, 30, 50]] = 3, 3 + 2e-7, 2.5, 2.5 + 2e-7
SCORES[[20, 21]] = 0.5, 0.5 + 6e-8


@pytest.fixture(scope="module")
def search(tmp_path_factory, target):
    file = onnx_file(
        tmp_path_factory.mktemp("ties") / "net.onnx", TEXT, table=TABLE, ones=np.ones(64, "f")
    )
    network = OnnxNetwork(OnnxOptions(source=str(file)))
    return ErrorSearch(network, "NCHW", empty_kernels(target), target, 1)


def _verdict(search, monkeypatch, *, theirs=SCORES, table=TABLE, offset=0.0):
    """The verdict on the network if its framework computes other scores or reads other rows.

    An offset is added to the network's own rows.
    """
    index = np.argsort(-theirs, kind="stable")[:3]
    worst = np.argmin(theirs)
    values = {"scores": theirs, "index": index, "worst": worst}
    # The class has a method of this name, and the search is frozen.
    monkeypatch.setattr(
        OnnxNetwork, "values", lambda _, names, __: iter([[np.array(values[n]) for n in names]])
    )
    expected = Expected([[SCORES]], [[theirs[index], np.tanh(table[index]), worst]], lambda: None)
    with search.running(search.network.imported) as (process, _):

        def ours(inputs):
            best, rows, least = process.outputs(inputs)
            return [best, rows + np.float32(offset), least]

        verdict = expected.verdict(ours)
        return verdict, second_verdict(search, expected, ours, verdict)


ROUNDED = SCORES.copy()
ROUNDED[[7, 9, 30, 50, 20, 21]] = 3 + 2e-7, 3, 2.5 + 2e-7, 2.5, 0.5 + 6e-8, 0.5


def test_near_ties_are_no_errors(search, monkeypatch):
    elementwise, judged = _verdict(search, monkeypatch, theirs=ROUNDED)
    assert elementwise.problem is not None
    assert judged.problem is None
    assert judged.max_relative_error < 1e-6


@pytest.mark.parametrize(
    "wrong",
    [
        {"theirs": np.where(np.arange(64) == 3, 2.6, ROUNDED).astype(np.float32)},
        full({"theirs": ROUNDED, "table": TABLE + 0.01}),
        full({"theirs": ROUNDED, "offset": 0.01}),
    ],
    ids=["another choice", "later operators", "the delivered network"],
)
def test_errors_beside_near_ties_are_found(wrong, search, monkeypatch):
    elementwise, judged = _verdict(search, monkeypatch, **wrong)
    assert judged == elementwise
    assert judged.problem is not None


DETECTOR = """(float[16, 512] x) => (float[16, 4] rows, float[16] best, int64[16] labels) {
    k = Constant<value = int64[1] {16}>()
    all = MatMul(x, w)
    small = Mul(all, scale)
    scores = Sigmoid(small)
    shape = Constant<value = int64[1] {-1}>()
    flat = Reshape(scores, shape)
    best, index = TopK(flat, k)
    rows = Gather(table, index)
    labels = ArgMax<axis = 1, keepdims = 0>(scores)
}"""


@pytest.mark.full
def test_commands_deliver_and_verify_a_detector_with_near_ties(tmp_path):
    rng = np.random.default_rng(0)
    file = onnx_file(
        tmp_path / "net.onnx",
        DETECTOR,
        w=rng.standard_normal((512, 64)).astype(np.float32),
        scale=np.float32(1e-7),
        table=rng.standard_normal((1024, 4)).astype(np.float32),
    )
    pipeline, run = tmp_path / "p.yaml", tmp_path / "run"
    model = {"onnx": {"source": str(file), "compare": False, "levels": ["x86-64-v2"]}}
    budget = {"measurements": 0}
    pipeline.write_text(json.dumps({"model": model, "budget": budget, "output": str(run)}))
    assert command_line(["run", str(pipeline)]) == ExitCode.OK
    assert command_line(["verify", str(run)]) == ExitCode.OK
    manifest = json.loads((run / "network" / "manifest.json").read_text())
    assert [row["checked"] for row in manifest["levels"]] == ["tuned", "measured"]
    assert bool(manifest.get("permissions")) == ("vectors" in manifest)


CHOSEN = """(float[64] x) => (float[n] chosen, int64[1, n] at) {
    limit = Constant<value = float {1.5}>()
    axes = Constant<value = int64[1] {0}>()
    scores = Mul(x, ones)
    high = Greater(scores, limit)
    at = NonZero(high)
    flat = Squeeze(at, axes)
    chosen = Gather(scores, flat)
}"""


@pytest.fixture(scope="module")
def choosing(tmp_path_factory, target):
    folder = tmp_path_factory.mktemp("chosen")
    file = onnx_file(folder / "net.onnx", CHOSEN, ones=np.ones(64, "f"))
    network = OnnxNetwork(OnnxOptions(source=str(file)))
    return ErrorSearch(network, "NCHW", empty_kernels(target), target, 1)


@pytest.mark.parametrize(
    ("theirs", "added", "is_right"),
    [(1.5 + 2e-7, 0, True), full(1.6, 0, False), full(1.5 + 2e-7, 1, False)],
)
def test_a_number_near_a_limit_may_be_chosen_or_not(choosing, theirs, added, is_right, monkeypatch):
    own, other = np.linspace(1, 2, 64, dtype=np.float32), np.linspace(1, 2, 64, dtype=np.float32)
    own[5], other[5] = 1.5, theirs
    monkeypatch.setattr(OnnxNetwork, "values", lambda *_: iter([[other]]))
    places = np.flatnonzero(other > np.float32(1.5)) + added
    answers = [other[places % 64], places[None]]
    expected = Expected(
        [[own]], [answers], lambda: None, exact_outputs=choosing.network.exact_outputs
    )
    with choosing.running(choosing.network.imported) as (process, _):
        verdict = expected.verdict(process.outputs)
        judged = second_verdict(choosing, expected, process.outputs, verdict)
    assert "have the shapes" in verdict.problem
    assert (judged.problem is None) == is_right
