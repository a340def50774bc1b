"""A network in buckets of shapes is delivered in types: each bucket's own, under the bound."""

import json
from functools import partial

import attrs
import chameleon_networks
import numpy as np
import pytest
from chameleon_cli._main import run as command_line
from chameleon_core._errors import ConfigError
from chameleon_core._network_result import NetworkResult
from chameleon_core._task import Task
from chameleon_core.api import RecordStore
from chameleon_networks._comparison.reduced_precision import held_out_samples, reduced_comparison
from chameleon_networks._delivery.buckets import summed
from chameleon_networks._evaluation.verify import Sample
from chameleon_networks._frontends.lazy import LazyFrontend
from chameleon_networks._importers.options import BuiltinOptions
from chameleon_networks._precision.section import Precision
from chameleon_networks._quantize import calibration_batches as reading
from chameleon_networks._quantize.calibration_batches import batches_of
from chameleon_networks._shapes import Buckets
from synthetic import measurements_in

from ..masked import NETWORK, masked  # noqa: TID252 - shared by folders

pytestmark = pytest.mark.usefixtures("forked_networks")

DATA = """
import numpy as np

def of(*lengths):
    rng = np.random.default_rng(0)
    for length in lengths:
        ids = rng.integers(1, 100, (1, length))
        yield {"ids": ids, "mask": np.ones((1, length), "float32")}

def batches():
    yield from of(4, 3, 12, 9, 4, 7, 2, 11)

def many():
    yield from of(*[4, 3, 12, 9, 2, 11, 4, 10] * 8)

def long_ones():
    yield from of(12, 9, 10)

def too_long():
    yield from of(4, 12, 13)

def without_end():
    while True:
        yield from of(4)

def nothing():
    return []
"""

BUCKETS = ["length=4", "length=12"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Has the network and the batches."""
    base = tmp_path_factory.mktemp("masked")
    (base / "net.py").write_text(NETWORK)
    (base / "data.py").write_text(DATA)
    return base


def _masked(folder, pad=0.0):
    return masked(folder / "net.py", 4, 12, pad=pad)


@pytest.fixture(scope="module")
def source(folder):
    """The network, of which nothing but shapes is asked."""
    return _masked(folder)


# -- batches -------------------------------------------------------------------------------------


def test_batches_go_to_the_bucket_that_inference_would_take(source, folder):
    lengths, aside = {}, {}
    for bucket, network in source.network.networks:
        batches = batches_of(network, f"{folder}/data.py:batches")
        used = list(batches)
        assert {ids.shape for ids, _ in used} == {(1, *bucket.extents)}
        lengths[bucket.name] = [int(mask.sum()) for _, mask in used]
        aside[bucket.name] = [int(sample.inputs[1].sum()) for sample in batches.samples]
        assert f"in bucket {bucket.name}, 2 kept aside" in batches.summary
    assert lengths == {"length=4": [4, 3], "length=12": [12, 9]}
    assert aside == {"length=4": [4, 2], "length=12": [7, 11]}


def test_outputs_for_filled_up_inputs_are_cut_before_they_are_compared(source, folder):
    _, network = source.network.networks[1]
    samples = held_out_samples(network, f"{folder}/data.py:batches")
    assert [sample.cuts for sample in samples] == [((0, 1, 7),), ((0, 1, 11),)]

    def run(inputs):
        return [inputs[1][..., None].repeat(32, 2), np.ones((1, 8))]

    request = reduced_comparison(network, ["as-it-comes"], f"{folder}/data.py:batches", run)
    assert [hidden.shape for hidden, _ in request.expected] == [(1, 7, 32), (1, 11, 32)]
    assert all(hidden.all() for hidden, _ in request.expected), "what is filled up is masked"


def test_a_sample_is_cut_where_it_was_filled_up():
    outputs = [np.arange(12).reshape(1, 3, 4), np.ones(2)]
    first, second = Sample(inputs=[], cuts=((0, 1, 2), (0, 2, 3))).cut(outputs)
    np.testing.assert_array_equal(first, outputs[0][:, :2, :3])
    assert second is outputs[1]
    assert outputs[0].shape == (1, 3, 4)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("too_long", r"calibrate: batch 3 of .*too_long: no bucket takes ids \[1, 13\], mask"),
        ("long_ones", r"no batch of .*long_ones is in bucket length=4; there are 3 in length=12"),
        ("nothing", "yields no batch"),
    ],
)
def test_batches_that_belong_to_no_bucket_or_leave_one_out_are_refused(
    source, folder, function, said
):
    _, network = source.network.networks[0]
    with pytest.raises(ConfigError, match=said) as caught:
        list(batches_of(network, f"{folder}/data.py:{function}"))
    assert caught.value.hint


def test_without_padding_batches_have_the_shapes_of_buckets(folder):
    _, network = _masked(folder, pad=None).network.networks[0]
    with pytest.raises(ConfigError, match=r"batch 2 of .*: no bucket takes ids \[1, 3\]"):
        list(batches_of(network, f"{folder}/data.py:batches"))


def test_batches_of_other_buckets_count_among_those_that_are_read(source, folder, monkeypatch):
    monkeypatch.setattr(reading, "MAX_BATCHES", 5)
    _, network = source.network.networks[1]
    with pytest.raises(ConfigError, match=r"is in bucket length=12; there are 5 in length=4"):
        list(batches_of(network, f"{folder}/data.py:without_end"))


def test_batches_that_errors_alone_are_measured_on_are_read_before_tuning(folder, trials):
    frontend = _masked(folder)
    frontend.compute_in(Precision(type="bfloat16", calibrate=f"{folder}/data.py:long_ones"))
    with pytest.raises(ConfigError, match="is in bucket length=4"):
        frontend.decide(trials)


# -- types of their own --------------------------------------------------------------------------


def test_a_metric_has_a_sentence():
    shapes = {"x": (Buckets(buckets=(1, 8)), 3)}
    source = LazyFrontend(BuiltinOptions(network="resnet_small", shapes=shapes))
    asked = Precision(search=("int8",), metric="eval.py:accuracy", max_drop=0.1)
    with pytest.raises(ConfigError, match="this one has 2 buckets of shapes") as caught:
        source.compute_in(asked)
    assert "max_error" in str(caught.value.hint)


def test_alternatives_of_all_buckets_name_what_they_replace(folder, target):
    frontend = _masked(folder)
    plain = frontend.tasks(target)
    frontend.compute_in(Precision(type="int8"))
    tasks = frontend.tasks(target)
    assert [t for t in tasks if not t.alternative_of] == plain
    assert {t.name: (t.alternative_of, t.weight) for t in tasks if t.alternative_of} == {
        "hidden 16x32 @4 int8": ("hidden 16x32 @4", 1),
        "head 32x8 int8": ("head 32x8", 2),
        "hidden 16x32 @12 int8": ("hidden 16x32 @12", 1),
    }


def test_names_that_tell_buckets_apart_are_those_that_alternatives_replace(source):
    def task(name, number, alternative_of=""):
        arguments = {"number": number}
        own = Task(name=name, operator="odd", arguments=arguments, target="llvm", flop=1)
        return attrs.evolve(own, alternative_of=alternative_of)

    first = [task("a", 1), task("a int8", 2, "a"), task("b", 3), task("c", 4, "a")]
    second = [task("a", 5), task("a int8", 6, "a"), task("d", 4), task("e", 3, "a")]
    tasks = source._together([first, second])
    assert [(t.name, t.alternative_of, t.weight) for t in tasks] == [
        ("a@length=4", "", 1),
        ("a int8@length=4", "a@length=4", 1),
        ("b", "", 2),
        ("d", "", 2),
        ("a@length=12", "", 1),
        ("a int8@length=12", "a@length=12", 1),
    ]


# -- a whole network -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def precision(folder):
    return Precision(type="int8", max_error=0.1, calibrate=f"{folder}/data.py:many")


@pytest.fixture(scope="module")
def settled(folder, precision, trials):
    """What is settled on for each bucket, as a run folder keeps it."""
    frontend = _masked(folder)
    frontend.compute_in(precision)
    return json.loads(json.dumps(frontend.decide(trials)))


@pytest.fixture(scope="module")
def deliver(source, settled, delivered_in):
    """Delivers the network into a folder in a precision, as if int8 took half of the time."""
    return partial(delivered_in, source.network, settled)


@pytest.fixture(scope="module")
def delivered(deliver, precision, tmp_path_factory):
    """The network delivered in int8: only to be read."""
    return deliver(tmp_path_factory.mktemp("delivered") / "network", precision)


def _error(folder, source, length):
    """Of a delivered network's outputs for words of some length that nobody has seen."""
    ids = np.random.default_rng(length).integers(1, 100, (1, length))
    inputs = [ids, np.ones((1, length), np.float32)]
    expected = source.network.with_extents((length,)).framework("torch", 1)(inputs)
    got = chameleon_networks.load(folder)(*inputs)
    return max(
        float(np.abs(output - wanted).max() / np.abs(wanted).max())
        for output, wanted in zip(got, expected, strict=True)
    )


@pytest.mark.full
def test_each_bucket_has_ranges_of_its_own_batches(settled):
    types = {name: settled["buckets"][name]["types"] for name in BUCKETS}
    assert [bucket["types"] for bucket in types.values()] == [["int8"], ["int8"]]
    short, long = (list(bucket["ranges"].values()) for bucket in types.values())
    assert len(short) == len(long) > 0
    assert short != long


@pytest.mark.full
@pytest.mark.parametrize("length", [1, 3, 4, 8, 12])
def test_answers_of_any_length_are_within_the_bound(delivered, source, length):
    result, folder = delivered
    assert result.failure is None
    assert 1e-5 < _error(folder, source, length) < 0.1


@pytest.mark.full
def test_the_result_says_which_types_each_bucket_has(delivered):
    result, folder = delivered
    assert result.precision == "int8"
    sentences = result.precision_summary.split("; bucket ")
    assert sentences[0].startswith("bucket length=4: of 2 operators 2 in int8; error ")
    assert sentences[1].startswith("length=12: of 2 operators 2 in int8; error ")
    chosen = [row for row in result.front if row.delivered]
    assert [(row.bucket, row.types) for row in chosen] == [(name, {"int8": 2}) for name in BUCKETS]
    rows = result.buckets
    assert [row.precision for row in rows] == ["int8", "int8"]
    assert result.max_relative_error == max(row.max_relative_error for row in rows) < 0.1
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["precision"]["front"] == result.to_json()["front"]
    for name, row in zip(BUCKETS, rows, strict=True):
        own = json.loads((folder / name / "manifest.json").read_text())
        assert {task["arguments"]["dtype"] for task in own["tasks"]} == {"int8"}
        assert own["verification"]["max_relative_error"] == row.max_relative_error
        assert own["verification"]["samples"] == 3, "the batches that were kept aside"


@pytest.mark.long
def test_a_bound_is_held_in_every_bucket(delivered, deliver, precision, tmp_path):
    errors = [row.max_relative_error for row in delivered[0].buckets]
    assert errors[0] != errors[1]
    bound = float(np.sqrt(errors[0] * errors[1]))
    result, _ = deliver(tmp_path / "network", attrs.evolve(precision, max_error=bound))
    assert result.failure is None
    rows = result.buckets
    assert all(row.max_relative_error <= bound for row in rows)
    exact = int(np.argmin(errors))
    assert rows[exact].precision == "int8"
    assert rows[1 - exact].precision != "int8"
    assert result.precision == "int8, the rest float32"


@pytest.mark.long
def test_two_bytes_are_searched_in_buckets(folder, source, trials, tmp_path, delivered_in):
    asked = Precision(search=("bfloat16", "float16"), max_error=0.1)
    frontend = _masked(folder)
    frontend.compute_in(asked)
    chosen = frontend.decide(trials)
    share = {"bfloat16": 0.25, "float16": 0.75}
    result, written = delivered_in(source.network, chosen, tmp_path / "network", asked, alone=share)
    assert result.failure is None
    assert result.precision == "bfloat16"
    assert 1e-5 < _error(written, source, 9) < 0.1


@pytest.mark.long
def test_a_run_and_another_bound_from_the_command_line(folder, tmp_path, capfd):
    length = {"buckets": [4, 12], "pad": 0, "name": "length"}
    model = {
        "source": f"{folder}/net.py:masked",
        "shapes": {"ids": [1, length], "mask": [1, length]},
        "compare": False,
        "check": False,
    }
    pipeline = {
        "model": {"torch": model},
        "target": "native",
        "baselines": [],
        "precision": {"search": ["int8"], "max_error": 0.5, "calibrate": f"{folder}/data.py:many"},
        "scheduler": {"name": "gradient", "window": 1},
        "budget": {"measurements": 6, "batch_size": 2, "scope": "network"},
        "output": str(tmp_path / "run"),
    }
    (tmp_path / "p.yaml").write_text(json.dumps(pipeline))
    assert command_line(["run", str(tmp_path / "p.yaml"), "--json"]) == 0
    network = json.loads((tmp_path / "run" / "best.json").read_text())["network"]
    assert network["max_relative_error"] <= 0.5
    assert [row["name"] for row in network["buckets"]] == BUCKETS
    for name in BUCKETS:
        assert f"bucket {name}: " in network["precision_summary"]
        own = [row for row in network["front"] if row["bucket"] == name]
        assert [row["delivered"] for row in own].count(True) == 1
    before = measurements_in(tmp_path / "run")
    with RecordStore.of_run(tmp_path / "run") as store:
        others = [stored.task for stored in store.tasks() if stored.task.alternative_of]
    assert {stored.alternative_of for stored in others} == {
        "hidden 16x32 @4",
        "head 32x8",
        "hidden 16x32 @12",
    }
    assert "Types that there were to choose among" in (tmp_path / "run/report.html").read_text()
    capfd.readouterr()
    words = ["compile", str(tmp_path / "run"), "--max-error", "1e-9", "-o", str(tmp_path / "exact")]
    assert command_line(words) == 2
    assert f"{folder}/net.py:masked" in capfd.readouterr().err
    assert command_line([*words, "--trust-source"]) == 0
    printed = capfd.readouterr().out
    assert "precision: bucket length=4: float32, since " in printed
    assert "; bucket length=12: float32, since " in printed
    assert measurements_in(tmp_path / "run") == before
    assert _error(tmp_path / "exact", _masked(folder), 7) < 1e-4


# -- what is said of all -------------------------------------------------------------------------


def test_types_of_all_buckets_together(source):
    def result(precision, **types):
        row = NetworkResult.FrontPoint(types=types, seconds=0.5, error=1e-3, delivered=True)
        other = NetworkResult.FrontPoint(
            types={"bfloat16": 2}, seconds=1.0, error=1e-4, delivered=False
        )
        rival = NetworkResult.Rival(
            asked="int8", precision="int8", seconds=0.25, max_relative_error=1e-2
        )
        return NetworkResult(
            latency_seconds=0.5,
            untuned_seconds=2.0,
            rivals={"torch": 1.0},
            rivals_reduced={"torch int8": rival},
            max_relative_error=1e-6,
            precision=precision,
            precisions=(precision,),
            precision_summary=f"in {precision}",
            front=(other, row) if types else (),
        )

    names = {name: {} for name in BUCKETS}

    def total(short, long):
        return summed(source.network, dict(zip(BUCKETS, (short, long), strict=True)), names)

    mixed = total(result("int8", int7=2), result("float32", float32=2))
    assert mixed.precision == "int8, the rest float32"
    summary = "bucket length=4: in int8; bucket length=12: in float32"
    assert mixed.precision_summary == summary
    assert [(row.bucket, row.delivered) for row in mixed.front] == [
        ("length=4", False),
        ("length=4", True),
        ("length=12", False),
        ("length=12", True),
    ]
    assert [row.precision for row in mixed.buckets] == ["int8", "float32"]
    # Like is held against like in each bucket.
    assert [row.ratio for row in mixed.buckets] == [0.5, 2.0]
    both = total(result("int8", int8=2), result("bfloat16", bfloat16=2))
    assert both.precision == "bfloat16 and int8"
    failed = total(result("int8", int8=2), result("float32"))
    assert failed.precision == "int8, the rest float32"
