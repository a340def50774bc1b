"""A small network is delivered in types: verified under its bound, or in float32, which is said."""

import json
from functools import partial

import numpy as np
import pytest
from chameleon_core._errors import ChameleonError, ConfigError, TargetError
from chameleon_core.plugin_api import NoOptions
from chameleon_networks._artifact.load import load
from chameleon_networks._delivery.mixed_precision import decisions as settling
from chameleon_networks._delivery.mixed_precision import delivery as candidates
from chameleon_networks._delivery.mixed_precision import delivery as delivering
from chameleon_networks._frontends.network import NetworkFrontend
from chameleon_networks._precision.section import Precision
from chameleon_networks._quantize import eligibility
from chameleon_tvm._device.targets import TVMTargets
from chameleon_tvm._types import STORAGE

pytestmark = pytest.mark.usefixtures("forked_networks")


@pytest.fixture(scope="module")
def settled(asked, trials):
    """What a frontend of the network settles on in int8; calibration takes a second."""
    frontend = asked(Precision(type="int8"))
    return frontend.decide(trials)


@pytest.fixture
def deliver(tiny, settled, tmp_path, delivered_in):
    """Delivers the network in a precision."""
    return partial(delivered_in, tiny, settled, tmp_path / "network")


@pytest.fixture(scope="module")
def whole(tiny, settled, tmp_path_factory, delivered_in):
    """The network delivered in int8: made once, and only to be read."""
    folder = tmp_path_factory.mktemp("whole") / "network"
    return delivered_in(tiny, settled, folder, Precision(type="int8", max_error=0.1))


def _error(folder, tiny):
    """Of a delivered network's outputs for inputs that nobody has seen."""
    network, reference = load(folder), tiny.framework(tiny.frameworks[0], 1)
    worst = 0.0
    for seed in (901, 902):
        inputs = tiny.samples(np.random.default_rng(seed))
        [wanted] = reference(inputs)
        worst = max(worst, float(np.abs(network(*inputs) - wanted).max() / np.abs(wanted).max()))
    return worst


def test_alternatives_are_tasks_that_name_what_they_are_alternatives_of(tiny, target, settled):
    frontend = NetworkFrontend(type(tiny)(tiny.options))
    plain = frontend.tasks(target)
    frontend.compute_in(Precision(type="int8"))
    frontend.restore(json.loads(json.dumps(settled)))
    tasks = frontend.tasks(target)
    own = [task for task in tasks if not task.alternative_of]
    others = [task for task in tasks if task.alternative_of]
    assert own == plain, "those in float32 are what they were"
    assert [task.alternative_of for task in others] == [task.name for task in plain]
    assert all(task.name.endswith(" int8") for task in others)
    assert {task.arguments["dtype"] for task in others} == {"int8"}


def test_each_step_says_what_it_has_taken(whole, settled):
    result, _ = whole
    steps = {f"{step} types" for step in ("simulating", "choosing")}
    steps |= {f"{step} in types" for step in ("compiling", "verifying", "timing")}
    # Where kernels have tiles, others with vectors stand in for systems that refuse them.
    taken = {*result.delivery_seconds} - {"compiling vector kernels"}
    assert taken == {"reference", "compiling and verifying", *steps}
    assert set(settled["types"]["seconds"]) == {"types", "calibration"}


def test_tasks_can_be_named_before_anything_is_settled(asked, target, settled):
    frontend = asked(Precision(type="int8"))
    before = {task.key for task in frontend.tasks(target)}
    frontend.restore(settled)
    assert before == {task.key for task in frontend.tasks(target)}


def test_int8_is_delivered_where_it_is_faster(whole, tiny):
    result, folder = whole
    assert result.failure is None
    assert result.precision == "int8"
    assert result.precision_summary.startswith("of 4 operators 4 in int8; error ")
    assert 1e-5 < result.max_relative_error < 0.1
    assert [row.delivered for row in result.front].count(True) == 1
    assert result.front[-1].types == {"int8": 4}
    assert 1e-5 < _error(folder, tiny) < 0.1
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["precision"]["front"] == result.to_json()["front"]
    assert manifest["verification"]["tolerance"] == 0.1
    assert manifest["verification"]["max_relative_error"] == result.max_relative_error
    assert {task["arguments"]["dtype"] for task in manifest["tasks"]} == {"int8"}


@pytest.mark.full
def test_a_bound_between_gives_some_operators_in_int8(deliver, whole, tiny):
    errors = [row.error for row in whole[0].front]
    bound = 1.05 * errors[len(errors) // 2]
    result, folder = deliver(Precision(search=("int8",), max_error=bound))
    assert result.precision == "int8, the rest float32"
    assert result.max_relative_error <= bound
    assert 1e-5 < _error(folder, tiny) < 0.2


@pytest.mark.full
@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
def test_two_bytes_are_delivered_with_the_error_of_their_simulation(
    kind, asked, trials, tmp_path, delivered_in
):
    rounding = STORAGE[kind].rounding
    precision = Precision(type=kind, max_error=0.1)
    frontend = asked(precision)
    decisions = frontend.decide(trials)
    assert decisions["types"]["types"] == [kind]
    folder = tmp_path / "network"
    result, _ = delivered_in(frontend.network, decisions, folder, precision)
    assert result.failure is None
    assert result.precision == kind
    [front] = [row for row in result.front if row.delivered]
    assert front.types == {kind: 4}
    assert 0.02 * rounding < result.max_relative_error < 2 * front.error
    assert 0.02 * rounding < _error(folder, frontend.network) < 13 * rounding
    manifest = json.loads((folder / "manifest.json").read_text())
    assert {task["arguments"]["dtype"] for task in manifest["tasks"]} == {kind}
    # What the network gives is not rounded.
    outputs = [task["arguments"].get("output_dtype", kind) for task in manifest["tasks"]]
    assert sorted(outputs) == sorted([*[kind] * 3, "float32"])


@pytest.mark.full
def test_types_are_mixed_in_one_network(tiny, trials, tmp_path, delivered_in, asked):
    precision = Precision(search=("bfloat16", "int8"), max_error=0.1)
    frontend = asked(precision)
    decisions = frontend.decide(trials)
    assert decisions["types"]["types"] == ["bfloat16", "int8"]
    result, folder = delivered_in(tiny, decisions, tmp_path / "network", precision)
    assert result.failure is None
    assert {kind for row in result.front for kind in row.types} >= {"bfloat16", "float32"}
    assert 1e-5 < _error(folder, tiny) < 0.1


@pytest.mark.full
@pytest.mark.parametrize(
    ("precision", "how", "why"),
    [
        (Precision(type="int8"), {"together": 1.1}, "since nothing else is faster"),
        (
            Precision(type="int8"),
            {"alone": 1.1},
            "since no operator was measured to be faster in int8",
        ),
        (
            Precision(type="int8"),
            {"alone": 0.5, "in_network": lambda *_: 1.1},
            "since no operator was measured to be faster in int8",
        ),
        (
            Precision(type="int8", max_error=1e-6),
            {},
            "since nothing faster holds the bound: at most 1e-06 is allowed",
        ),
    ],
)
def test_float32_is_delivered_and_said_where_int8_is_slower_or_too_inexact(
    deliver, tiny, precision, how, why
):
    result, folder = deliver(precision, **how)
    assert result.failure is None
    assert result.precision == "float32"
    assert result.precision_summary.startswith("float32, ")
    assert why in result.precision_summary
    assert _error(folder, tiny) < 1e-4
    assert result.max_relative_error < 1e-4


@pytest.mark.full
def test_types_are_chosen_by_what_operators_take_in_networks(deliver, monkeypatch):
    def share(index, reduced):
        """One is slow in int8, and another one as soon as that is in float32."""
        return 9.0 if index == 0 and reduced > 2 else 0.5

    chosen = []
    tried = delivering.Candidates.tried

    def noted(self, point):
        chosen.append(point.types)
        return tried(self, point)

    monkeypatch.setattr(delivering.Candidates, "tried", noted)
    result, _ = deliver(Precision(type="int8"), alone=1.1, in_network=share)
    assert [len(types) for types in chosen] == [3, 2], "each choice is of what the last one showed"
    assert chosen[0].items() > chosen[1].items()
    assert result.precision == "int8, the rest float32"
    assert min(row.seconds for row in result.front) < 3.5e-3


@pytest.mark.full
def test_types_are_chosen_by_what_is_measured_alone_where_networks_cannot_be_profiled(deliver):
    def failing(*_):
        raise ChameleonError("the process ended", hint="")

    result, _ = deliver(Precision(type="int8"), alone=0.5, in_network=failing)
    assert result.precision == "int8"
    assert result.front[0].seconds == pytest.approx(4e-3, rel=1e-2)


METRICS = """
import numpy as np

def first(network):
    rng = np.random.default_rng(5)
    inputs = rng.standard_normal((1, 3, 8, 8), np.float32)
    return float(np.asarray(network(inputs)).reshape(-1)[0])

def raising(network):
    raise ZeroDivisionError("no data")
def huge(network):
    return 10**400
"""


@pytest.mark.long  # it compiles several networks
def test_a_metric_bounds_how_much_worse_the_network_may_be(deliver, tmp_path):
    (tmp_path / "eval.py").write_text(METRICS)
    source = f"{tmp_path}/eval.py:first"
    loose, _ = deliver(Precision(search=("int8",), metric=source, max_drop=1e3))
    assert loose.precision == "int8"
    assert loose.score is not None
    assert 0.0 < abs(loose.score - loose.score_in_float32) < 1.0
    with pytest.MonkeyPatch.context() as patch:
        # By this metric every network in types is worse than float32.
        patch.setattr(candidates, "evaluate_metric", _worse)
        strict, _ = deliver(Precision(search=("int8",), metric=source, max_drop=0.5))
    assert strict.precision == "float32"
    assert "a drop of 0.5" in strict.precision_summary
    assert strict.score == strict.score_in_float32 == 1.0


def _worse(_, __, run):
    return 1.0 if getattr(getattr(run, "__self__", None), "name", "") == "float32" else 0.0


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "said"),
    [("raising", "raising failed"), ("huge", "returned 10*.*0, which is no finite number")],
)
def test_a_metric_without_a_score_is_refused_before_anything_is_tuned(
    name, said, asked, trials, tmp_path
):
    (tmp_path / "eval.py").write_text(METRICS)
    source = f"{tmp_path}/eval.py:{name}"
    frontend = asked(Precision(search=("int8",), metric=source, max_drop=0.1))
    with pytest.raises(ConfigError, match=said):
        frontend.decide(trials)


@pytest.mark.full
def test_a_type_that_no_operator_can_have_is_refused_or_left_out(asked, trials, monkeypatch):
    monkeypatch.setattr(eligibility, "overflows", lambda _, kind: kind.name == "float16")
    frontend = asked(Precision(type="float16"))
    with pytest.raises(ConfigError, match=r"can be computed in float16 .*larger than what float16"):
        frontend.decide(trials)
    frontend = asked(Precision(search=("float16", "int8"), max_error=0.1))
    decisions = frontend.decide(trials)
    assert decisions["types"]["types"] == ["int8"]
    assert "float16" in decisions["types"]["told"][0]


def test_targets_and_networks_without_reduced_precision_are_refused(asked, trials, monkeypatch):
    frontend = asked(Precision(type="int8"))
    cuda = TVMTargets(NoOptions()).resolve("cuda -arch=sm_80")
    with pytest.raises(TargetError, match="networks are computed in int8 on CPUs alone"):
        frontend.decide(type(trials)(cuda))

    def lacking(_):
        raise TargetError("this CPU lacks amx-tile")

    monkeypatch.setattr(settling, "check_target", lacking)
    with pytest.raises(TargetError, match=r"found by running the network: this CPU lacks"):
        frontend.decide(trials)
