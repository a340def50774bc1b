"""Weights of seven bits: another type where CPUs multiply them faster, with an error of its own."""

from collections.abc import Mapping

import numpy as np
import pytest
from chameleon_core._errors import TargetError
from chameleon_core.plugin_api import NoOptions
from chameleon_networks._artifact.writer import check_target
from chameleon_networks._comparison.reduced_precision import compared_precisions
from chameleon_networks._delivery.mixed_precision import decisions as settling
from chameleon_networks._delivery.mixed_precision.operator_seconds import OperatorSeconds
from chameleon_networks._graph.relax_utils import relax
from chameleon_networks._precision.exchanged_tensors import exchanged_tensors
from chameleon_networks._precision.points import ParetoFront, dtype_counts_text
from chameleon_networks._precision.section import Precision
from chameleon_networks._precision.typed_networks import TypedNetworks
from chameleon_networks._quantize.eligibility import find_eligible
from chameleon_networks._quantize.weights import quantize_weights
from chameleon_tvm._device.targets import TVMTargets
from chameleon_tvm._instructions.selection import narrow_weights_pay
from chameleon_tvm._types import STORAGE
from chameleon_tvm._words import chosen_types

pytestmark = pytest.mark.usefixtures("forked_networks")

KINDS = ("int8", "int7")


def cpu(name):
    return TVMTargets(NoOptions()).resolve(f"llvm -mtriple=x86_64-linux-gnu -mcpu={name}")


AVX2 = cpu("haswell")


@pytest.fixture
def _as_the_cpu_is():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(settling, "narrow_weights_pay", narrow_weights_pay)
        yield


def test_weights_are_between_the_ends_of_their_range():
    weights = np.random.default_rng(0).standard_normal((5, 4, 3, 3)).astype(np.float32)
    weights[2] = 0
    encoded = {kind: quantize_weights(weights, STORAGE[kind]) for kind in KINDS}
    assert [int(np.abs(own.values).max()) for own in encoded.values()] == [127, 64]
    largest = np.abs(encoded["int7"].values.astype(np.int32)).reshape(5, -1).max(1)
    assert largest.tolist() == [64, 64, 0, 64, 64]
    errors = [np.abs(own.dequantized - weights).max() for own in encoded.values()]
    assert 1.5 < errors[1] / errors[0] < 3


def test_operators_that_gain_nothing_are_left_in_eight_bits(network_of):
    rng = np.random.default_rng(0)
    filters = [
        rng.standard_normal(shape).astype("float32") for shape in ((8, 8, 1, 1), (8, 1, 3, 3))
    ]

    def build(emit, x):
        x = emit(relax.op.nn.conv2d(x, relax.const(filters[0])))
        return emit(relax.op.nn.conv2d(x, relax.const(filters[1]), padding=1, groups=8))

    module, fusions = network_of(build, (1, 8, 6, 6))
    able = find_eligible(fusions, "int7")
    assert able.indices == (0,)
    assert "no faster" in able.reasons[1]
    networks = TypedNetworks(module, fusions, None)
    assert (networks.reducible("int7"), networks.reducible("int8")) == ((0,), (0, 1))
    uniform = networks.uniform("int7")
    written = [fusion.spec.output_dtype for fusion in uniform.fusions]
    assert written == ["uint8", "float32"], "the one behind it reads eight bits"


def test_conversions_between_types_that_read_the_same_take_nothing(networks):
    for tensor in exchanged_tensors(networks.network, ("float32", *KINDS), 1.0):
        assert tensor.conversions[1, 2] == tensor.conversions[2, 1] == 0.0
        assert (tensor.conversions[0, 1:] == tensor.conversions[0, 1]).all()
        assert tensor.conversions[0, 1] > 0.0


class Errors:
    """Those of operators in seven bits are twice those in eight, and all add up."""

    each: Mapping[str, float] = {"int8": 1e-3, "int7": 2e-3}

    def errors_alone(self, kinds):
        return {(index, kind): self.each[kind] for kind in kinds for index in range(4)}

    def error_of(self, types):
        return sum(self.each[kind] for kind in types.values())


@pytest.mark.parametrize(
    ("bound", "kinds"),
    [(8.1e-3, ["int7"] * 4), (5.1e-3, ["int7", "int8", "int8", "int8"]), (4.1e-3, ["int8"] * 4)],
)
def test_the_error_decides_which_operators_have_fewer_bits(networks, bound, kinds, kernels_taking):
    kernels = kernels_taking(networks, AVX2, float32=4e-3, int8=2e-3, int7=1e-3)
    known = OperatorSeconds(networks, KINDS, kernels)
    assert known.times.tolist() == [[4e-3, 2e-3, 1e-3]] * 4
    assert known.uniform("int7") == dict.fromkeys(range(4), "int7")
    point = ParetoFront(networks, known.kinds, known.times, Errors(), rate=1e15).fastest_within(
        bound
    )
    assert point.error <= bound
    assert sorted(point.types.values()) == kinds


@pytest.mark.full
@pytest.mark.usefixtures("_as_the_cpu_is")
def test_a_network_is_delivered_in_fewer_bits_where_that_is_faster(
    tiny, trials, delivered_in, tmp_path, asked
):
    try:
        check_target(AVX2)
    except TargetError:
        pytest.skip("this CPU lacks AVX2")
    precision = Precision(type="int8")
    frontend = asked(precision)
    before = [task.key for task in frontend.tasks(AVX2)]
    decisions = frontend.decide(type(trials)(AVX2))
    assert decisions["types"]["types"] == [*KINDS]
    tasks = frontend.tasks(AVX2)
    assert [task.key for task in tasks] == before
    others = [task for task in tasks if task.alternative_of]
    assert [task.arguments["dtype"] for task in others] == ["int8"] * 4 + ["int7"] * 4
    assert all(task.name.endswith(f" {task.arguments['dtype']}") for task in others)
    delivered = delivered_in.func
    result, _ = delivered(
        AVX2, tiny, decisions, tmp_path / "network", precision, alone={"int8": 0.5, "int7": 0.4}
    )
    assert result.failure is None
    assert result.precision == "int8"
    assert result.precision_summary.startswith("of 4 operators 4 in int7; error ")
    assert {"int7": 4} in [row.types for row in result.front if row.delivered]
    assert 1e-5 < result.max_relative_error < 0.2


@pytest.mark.usefixtures("_as_the_cpu_is")
def test_cpus_with_an_instruction_for_all_bytes_do_not_try_it(asked):
    frontend = asked(Precision(type="int8"))
    for name, dtypes in (("haswell", {*KINDS}), ("znver4", {"int8"}), ("sapphirerapids", {"int8"})):
        tasks = [task for task in frontend.tasks(cpu(name)) if task.alternative_of]
        assert {task.arguments["dtype"] for task in tasks} == dtypes


def test_others_are_compared_with_in_int8():
    assert compared_precisions(["float32", *KINDS]) == ("int8", "as-it-comes")
    assert dtype_counts_text({0: "int7", 1: "int8"}, 2) == "int8"
    assert chosen_types(["int7", "float32"]) == ("int8",)
