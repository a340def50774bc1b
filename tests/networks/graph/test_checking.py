"""What cannot be delivered is told apart, with the operator and its place."""

import re
import tempfile
import textwrap
from itertools import count

import numpy as np
import pytest
from chameleon_core._errors import ChameleonError, ConfigError
from chameleon_networks._checks import check, worker
from chameleon_networks._checks.check import CheckReport, tried
from chameleon_networks._checks.error_search import ErrorSearch
from chameleon_networks._checks.worker import NetworkCheck
from chameleon_networks._compile.loop_tasks import LARGE_SHARE
from chameleon_networks._compile.prepared_networks import prepared_network
from chameleon_networks._evaluation.verify import LARGEST_TOLERANCE, TOLERANCE
from chameleon_networks._frontends.network import NetworkFrontend
from chameleon_networks._importers.options import TorchOptions
from chameleon_networks._importers.sources import TorchNetwork
from structlog.testing import capture_logs

NETS = """
    import torch
    from torch import nn

    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.shared = nn.Linear(4, 4)
            self.drop = nn.Dropout()

        def forward(self, x, *, mask, ids):
            y = self.shared(self.drop(self.shared(x)))
            return {"y": y.masked_fill(mask, 0.0), "rest": (x, y[ids].T)}

    def several():
        masks = {"mask": torch.ones(3, 4) > 0, "ids": torch.tensor([0, 2])}
        return Two(), ((torch.ones(3, 4),), masks)

    class Branch(nn.Module):
        def forward(self, x):
            if x.sum() > 0:
                return x
            return x * 2

    def branch():
        return Branch(), torch.ones(3)

    class Chaos(nn.Module):
        # Each turn of the logistic map doubles an error.
        def __init__(self, turns):
            super().__init__()
            self.first = nn.Linear(256, 64)
            self.turns = turns

        def forward(self, x):
            x = torch.sigmoid(self.first(x))
            for _ in range(self.turns):
                x = 3.99 * x * (1 - x)
            return x

    def chaos():
        return Chaos(16), torch.ones(32, 256)

    def more_chaos():
        return Chaos(40), torch.ones(32, 256)

    class Window(nn.Module):
        # The window is of the memory, so that it depends on the order of the axes there.
        def forward(self, x):
            return x.as_strided((3, 2), (1, 3)) + x[0, 1]

    def transposed():
        return Window(), torch.randn(3, 4).t()

    class Doubling(nn.Module):
        def forward(self, x):
            x.mul_(2)
            return x + 1

    def doubling():
        return Doubling(), torch.randn(3)

    class Roots(nn.Module):
        def forward(self, x, scale, places):
            masked = torch.where(x > 0.5, x, float("-inf"))
            return x.sqrt().log() * scale, scale + places.sum(), masked

    def roots():
        return Roots(), (torch.rand(3, 4), torch.tensor(0.5), torch.tensor([-3, -2]))

    class Scattered(nn.Module):
        def forward(self, x):
            return torch.zeros(400, 20).scatter_reduce(0, (x > 0).long(), x, "amax")

    def scattered():
        return Scattered(), torch.randn(400, 20)

    def infinite():
        network = nn.Linear(4, 4)
        with torch.no_grad():
            network.weight[0, 0] = float("inf")
        return network, torch.ones(3, 4)
"""


@pytest.fixture
def network(tmp_path):
    """Makes a network above."""
    path = tmp_path / "nets.py"
    path.write_text(textwrap.dedent(NETS), encoding="utf-8")

    def make(name):
        return TorchNetwork(TorchOptions(source=f"{path}:{name}"))

    return make


def test_inputs_and_outputs_of_every_kind(network, target):
    report = NetworkCheck(network("several"), target, 2).report(["NHWC", "NCHW"])
    assert (report.layout, report.reference, report.refused) == ("NHWC", "torch", {})
    assert report.max_relative_error < 1e-5


def test_what_stays_in_default_loops_is_said(network, target):
    scattered = network("scattered")
    report = NetworkCheck(scattered, target, 2).report(["NHWC"])
    [(name, share)] = report.unscheduled.items()
    assert "scatter" in name
    assert LARGE_SHARE < share <= 1.0
    with capture_logs() as lines:
        NetworkFrontend(scattered).check(target, 2, report.to_json())
    assert [line["event"] for line in lines] == ["operators_in_default_loops"]


def test_control_flow_names_its_line(network):
    with pytest.raises(ConfigError, match="torch cannot export") as caught:
        NetworkFrontend(network("branch")).tasks("llvm")
    assert "torch.where" in (caught.value.hint or "")


def test_numbers_that_are_not_finite_are_said(network, target):
    with pytest.raises(ConfigError, match="torch computes NaN or infinity"):
        NetworkCheck(network("infinite"), target, 2).report(["NHWC"])


def test_what_depends_on_earlier_calls_is_refused(network, target, monkeypatch):
    calls = count()
    monkeypatch.setattr(
        TorchNetwork, "framework", lambda *_: lambda inputs: [inputs[0] + next(calls)]
    )
    with pytest.raises(ConfigError, match="torch gives other answers when") as caught:
        NetworkCheck(network("scattered"), target, 2).report(["NHWC"])
    assert "one of its inputs and one of its outputs" in (caught.value.hint or "")


def test_no_operator_is_blamed_if_the_network_is_compiled(network, target, monkeypatch):
    monkeypatch.setattr(worker, "_profiled", lambda *_: ([np.zeros((400, 20), "f")], [], None))
    monkeypatch.setattr(worker, "first_unsupported_operator", lambda *_: "a blamed operator")
    with pytest.raises(ConfigError, match="compared with torch"):
        NetworkCheck(network("scattered"), target, 2).report(["NHWC"])


@pytest.mark.parametrize("name", ["doubling", "roots", "transposed"])
def test_inputs_are_like_the_examples_and_stay_as_they_are(name, network, target):
    assert NetworkCheck(network(name), target, 2).report(["NHWC"]).max_relative_error < 1e-5


def test_the_operator_at_which_errors_begin_is_said(network, target, monkeypatch):
    scattered = network("scattered")
    [right] = scattered.framework("torch", 1)(scattered.samples(np.random.default_rng(0)))
    monkeypatch.setattr(worker, "_profiled", lambda *_: ([right + 1], [], None))
    monkeypatch.setattr(ErrorSearch, "cause", lambda _, *place: f"errors begin in {place[1]}")

    def undecided(reference, _, verdict):
        reference.opinions.append("!")
        return verdict

    monkeypatch.setattr(worker.Reference, "arbitrated", undecided)
    with pytest.raises(ConfigError, match=r"off by .* is allowed; errors begin in 0!"):
        NetworkCheck(scattered, target, 2).report(["NHWC"])


@pytest.mark.full
def test_a_network_that_makes_much_of_roundings_is_not_refused(network, target):
    report = NetworkCheck(network("chaos"), target, 2).report(["NHWC"])
    assert report.max_relative_error > TOLERANCE
    assert "torch in float32 are off by" in (report.conditioning or "")


@pytest.mark.full
def test_a_network_without_a_right_digit_is_compared_part_by_part(network, target):
    report = NetworkCheck(network("more_chaos"), target, 2).report(["NHWC"])
    assert report.max_relative_error > LARGEST_TOLERANCE
    parts, largest = re.search(
        r"each of (\d+) parts .* at most (\S+)", report.conditioning or ""
    ).groups()
    assert int(parts) > 2
    assert 0 < float(largest) < TOLERANCE


@pytest.mark.full
def test_a_part_that_is_wrong_is_not_excused(network, target, monkeypatch):
    values = TorchNetwork.values

    def wrong_values(network, names, batches):
        for arrays in values(network, names, batches):
            yield [np.where(array == array.max(), 0, array) for array in arrays]

    monkeypatch.setattr(TorchNetwork, "values", wrong_values)
    with pytest.raises(ConfigError, match="its outputs are off by"):
        NetworkCheck(network("more_chaos"), target, 2).report(["NHWC"])


def test_a_crash_is_a_sentence_or_the_other_layout(network, monkeypatch):
    def asked(_network, layouts, _target, _threads):
        if layouts[0] == "NHWC":
            raise ChameleonError("the compiler ended with SIGSEGV")
        return CheckReport(layout="NCHW", max_relative_error=0.0, reference="torch")

    monkeypatch.setattr(check, "_asked", asked)
    report = tried(network("several"), ["NHWC", "NCHW"], "llvm", 1)
    assert (report.layout, report.crashed) == ("NCHW", True)
    assert "not in NHWC: the compiler ended with SIGSEGV" in report.summary
    with pytest.raises(ConfigError, match="in NHWC the compiler ended with SIGSEGV"):
        tried(network("several"), ["NHWC"], "llvm", 1)


@pytest.mark.full
def test_a_process_answers_and_is_followed(network, target, monkeypatch):
    several = network("several")
    report = tried(several, ["NCHW"], target, 1)
    assert report.summary.startswith("it compiles, and agrees with torch")
    assert [*report.step_seconds] == [
        "start",
        "export",
        "import",
        "prepare",
        "compile",
        "link",
        "reference",
        "run",
        "compare",
        "estimate errors",
    ]

    def again():
        raise AssertionError("it was read while the other process compiled")

    monkeypatch.setattr(several, "read_graph", again)
    assert prepared_network(several, "NCHW")


@pytest.mark.full
def test_a_process_leaves_no_files(network, target, tmp_path, monkeypatch):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    monkeypatch.setattr(tempfile, "tempdir", None)
    assert tried(network("several"), ["NCHW"], target, 1).step_seconds["link"]
    assert not [*scratch.iterdir()]
