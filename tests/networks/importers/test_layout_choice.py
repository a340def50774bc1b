"""The layout of a network is the one in which a few of its convolutions are faster."""

import pytest
from chameleon_core.plugin_api import Frontend
from chameleon_networks._compile import prepared_networks
from chameleon_networks._delivery.layout_choice import ENOUGH, GUESSES, MARGIN, LayoutChoice, choose
from chameleon_networks._evaluation.messages import describe_network, network_from
from chameleon_networks._frontends.network import NetworkFrontend
from chameleon_networks._graph.operators import count_transposed_elements
from chameleon_networks._graph.prepare import LayoutError
from chameleon_networks._importers.options import BuiltinOptions, TorchOptions
from chameleon_networks._importers.sources import BuiltinNetwork, TorchNetwork
from chameleon_tvm.api import Conv2dSpec, DenseSpec, DepthwiseConv2dSpec


class Scripted(Frontend.Trials):
    """Answers with times by layout, for each unit of work."""

    def __init__(self, seconds, *, measures_hardware=True, costs=None):
        self.target = '{"kind": "llvm"}'
        self._costs = costs
        self.measures_hardware = measures_hardware
        self.asked: list[tuple[str, float]] = []
        self._seconds = seconds

    def best_seconds(self, task, guesses, *, seconds_to_beat=float("inf")):
        assert guesses == GUESSES
        assert task.target == self.target
        self.asked.append((task.name, seconds_to_beat))
        layout = task.arguments["layout"]
        assert task.arguments["output_layout"] == layout or task.name == "stem"
        per_flop = self._seconds[str(layout) if task.name != "stem" else "NHWC"]
        return None if per_flop is None else per_flop * task.flop

    def guessed_cost(self, task):
        return None if self._costs is None else self._costs[str(task.arguments["layout"])]


def _conv(name, channels, weight=1, **more):
    return Conv2dSpec(
        name=name,
        weight=weight,
        input=(1, channels, 14, 14),
        filters=channels,
        kernel=3,
        padding=1,
        layout="NHWC",
        **more,
    )


SPECS = [
    Conv2dSpec(
        name="stem", input=(1, 3, 28, 28), filters=16, kernel=7, layout="NCHW", output_layout="NHWC"
    ),
    _conv("big", 64, 3, activation="relu"),
    _conv("big_too", 64, 1, residual=True),
    DepthwiseConv2dSpec(name="depth", input=(1, 64, 14, 14), kernel=3, padding=1, layout="NHWC"),
    _conv("small", 16),
    DenseSpec(name="dense", input=(1, 64), units=1000),
]


def test_the_faster_layout_wins_and_the_slower_one_is_told_what_to_beat():
    trials = Scripted({"NHWC": 2e-9, "NCHW": 1e-9})
    choice = choose(SPECS, trials)
    flop = 2.0 * 64 * 64 * 9 * 14 * 14
    assert choice.layout == "NCHW"
    assert trials.asked == [("big", float("inf")), ("big_NCHW", 2e-9 * flop)]
    assert choice.measured == 1, "the heaviest one does enough of the work"
    assert choice.share > ENOUGH
    assert choice.seconds == pytest.approx({"NHWC": 4 * 2e-9 * flop, "NCHW": 4 * 1e-9 * flop})
    assert "NCHW, by first guesses of 1 of 4 convolutions: NHWC" in choice.summary
    assert LayoutChoice.from_json(choice.to_json()) == choice


def test_a_small_budget_measures_the_heaviest_convolution_alone():
    level = {"NHWC": 1e-9, "NCHW": 1e-9}
    specs = [_conv(f"conv{number}", 64 - number) for number in range(4)]
    plenty, little = Scripted(level), Scripted(level)
    assert choose(specs, plenty).measured > 1
    little.seconds = 0.0
    choice = choose(specs, little)
    assert (choice.measured, choice.layout) == (1, "NHWC")
    assert [name for name, _ in little.asked] == ["conv0", "conv0_NCHW"]


@pytest.mark.parametrize(
    ("theirs", "layout"), [(1.0 - 2 * MARGIN, "NCHW"), (1.0 - MARGIN / 2, "NHWC"), (1.5, "NHWC")]
)
def test_a_small_difference_changes_nothing(theirs, layout):
    assert choose(SPECS, Scripted({"NHWC": 1e-9, "NCHW": theirs * 1e-9})).layout == layout


def test_a_clear_difference_needs_two_convolutions_and_a_small_one_four():
    specs = [_conv(f"conv{n}", 16 + n) for n in range(6)]
    for theirs, measured in ((2e-9, 2), (1.2e-9, 4)):
        assert choose(specs, Scripted({"NHWC": 1e-9, "NCHW": theirs})).measured == measured


@pytest.mark.parametrize("missing", ["NHWC", "NCHW"])
def test_what_has_no_time_decides_nothing(missing):
    choice = choose(SPECS, Scripted({"NHWC": 1e-9, "NCHW": 1e-10, missing: None}))
    assert choice.layout == "NHWC"
    assert choice.seconds == {}
    assert "no first guess has a time" in choice.summary


UNKNOWN = {"NHWC": None, "NCHW": None}


@pytest.mark.parametrize("seconds", [UNKNOWN, {"NHWC": 1e-9, "NCHW": 1e-9}])
@pytest.mark.parametrize(
    ("moved", "layout"),
    [
        ({"NHWC": 0}, "NHWC"),
        ({"NHWC": 10**6, "NCHW": 0}, "NCHW"),
        ({"NHWC": 10**6, "NCHW": 10**6}, "NHWC"),
    ],
)
def test_permutations_count(seconds, moved, layout):
    specs = [_conv("conv", 32)]
    trials = Scripted(seconds, costs={"NHWC": 1.0, "NCHW": 1.0})
    choice = choose(specs, trials, moved.__getitem__)
    assert choice.layout == layout
    assert choice.measured == (seconds is not UNKNOWN)


def test_estimates_decide_if_nothing_is_measured():
    for theirs, layout in ((0.5, "NCHW"), (1.5, "NHWC")):
        choice = choose(SPECS, Scripted(UNKNOWN, costs={"NHWC": 1.0, "NCHW": theirs}))
        assert choice.layout == layout
        assert choice.summary == f"{layout}, by estimates of 4 of 4 convolutions"


@pytest.mark.parametrize(
    ("theirs", "measured", "layout"),
    [(3.0, 0, "NHWC"), (0.3, 0, "NCHW"), (1.5, 1, "NCHW"), (0.7, 1, "NCHW")],
)
def test_estimates_that_are_far_apart_are_not_measured(theirs, measured, layout):
    trials = Scripted({"NHWC": 2e-9, "NCHW": 1e-9}, costs={"NHWC": 1.0, "NCHW": theirs})
    choice = choose(SPECS, trials)
    assert (choice.measured, choice.layout) == (measured, layout)
    assert len(trials.asked) == 2 * measured


def _torch_network(path, layers, shape):
    """Layers one after the other, written to a file."""
    path.write_text(
        f"import torch\ndef net(): return torch.nn.Sequential(*{layers}), (torch.zeros({shape}),)\n"
    )
    return TorchNetwork(TorchOptions(source=f"{path}:net"))


def test_permutations_at_the_borders_of_a_network_are_counted(tmp_path):
    layers = "[torch.nn.Conv2d(8, 8, 3, groups=8), torch.nn.Conv2d(8, 4, 1)]"
    network = _torch_network(tmp_path / "net.py", layers, (1, 8, 12, 12))
    moved = {
        layout: count_transposed_elements(*prepared_networks.prepared_network(network, layout))
        for layout in ("NHWC", "NCHW")
    }
    assert moved == {"NHWC": (8 * 12 * 12) + (4 * 10 * 10), "NCHW": 0}


def test_the_stem_reads_images_as_they_come_in_both_layouts():
    trials = Scripted({"NHWC": 1e-9, "NCHW": 2e-9})
    assert choose(SPECS[:1], trials).measured == 1
    assert [name for name, _ in trials.asked] == ["stem", "stem_NCHW"]


@pytest.mark.parametrize(
    ("specs", "measures_hardware", "why"),
    [(SPECS[-1:], True, "no convolution"), (SPECS, False, "the runner measures nothing")],
)
def test_nothing_is_measured_without_need(specs, measures_hardware, why):
    trials = Scripted({"NHWC": 2e-9, "NCHW": 1e-9}, measures_hardware=measures_hardware)
    choice = choose(specs, trials)
    assert (choice.layout, trials.asked) == ("NHWC", [])
    assert why in choice.summary


def test_a_frontend_takes_the_choice_and_another_process_gets_it(tmp_path):
    frontend = NetworkFrontend(BuiltinNetwork(BuiltinOptions(network="resnet_small")))
    assert frontend.choice.layout == "NHWC"
    settled = frontend.decide(Scripted({"NHWC": 2e-9, "NCHW": 1e-9}))
    assert frontend.choice.layout == settled["layout"] == "NCHW"
    assert {task.arguments.get("layout", "NCHW") for task in frontend.tasks("llvm")} == {"NCHW"}
    again = NetworkFrontend(BuiltinNetwork(BuiltinOptions(network="resnet_small")))
    again.restore(settled)
    assert again.choice == frontend.choice
    assert network_from(describe_network(frontend.network)).layout == "NCHW"


def test_what_the_pipeline_says_is_not_measured():
    frontend = NetworkFrontend(
        BuiltinNetwork(BuiltinOptions(network="resnet_small", layout="NCHW"))
    )
    trials = Scripted({"NHWC": 1e-9, "NCHW": 2e-9})
    assert frontend.decide(trials) is None
    assert (frontend.choice.layout, trials.asked) == ("NCHW", [])


def test_a_network_that_cannot_be_converted_stays_as_it_is(tmp_path, monkeypatch):
    real = prepared_networks.prepare_module

    def refusing(module, layout):
        if layout == "NHWC":
            raise LayoutError("TVM cannot convert it")
        return real(module, layout)

    monkeypatch.setattr(prepared_networks, "prepare_module", refusing)
    network = _torch_network(tmp_path / "net.py", "[torch.nn.Conv2d(4, 8, 3)]", (1, 4, 8, 8))
    frontend = NetworkFrontend(network)
    settled = frontend.decide(Scripted({"NHWC": 1e-9, "NCHW": 2e-9}))
    assert settled["summary"] == "NCHW, since TVM cannot convert it"
    [task] = frontend.tasks("llvm")
    assert task.arguments["layout"] == "NCHW"
