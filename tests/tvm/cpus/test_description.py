"""One description of a CPU: what templates, first guesses and estimates are told."""

import json

import numpy as np
import pytest
from chameleon_tvm._device.cpus.description import _CORES, Core, core_of
from chameleon_tvm._device.targets import target_info
from chameleon_tvm._quick_tvm import codegen
from chameleon_tvm._spaces.template.convolution import geometry_of
from chameleon_tvm._spaces.template.options import TemplateOptions
from chameleon_tvm._spaces.template.provider import TemplateSpace
from chameleon_tvm._spaces.template.winograd_tiling import WinogradTiling
from chameleon_tvm.api import Conv2dSpec, DenseSpec, DepthwiseConv2dSpec
from computing import resolved
from hypothesis import given, settings
from hypothesis import strategies as st


def info(cpu, mattr=""):
    features = f" -mattr={mattr}" if mattr else ""
    return target_info(resolved(f"llvm -mcpu={cpu}{features} -num-cores=2"))


def arm(cpu):
    text = f"llvm -mtriple=aarch64-linux-gnu -mcpu={cpu} -num-cores=2"
    return target_info(resolved(text))


def test_the_estimates_of_zen_4_are_those_that_were_measured():
    zen4 = info("znver4")
    assert zen4.fma_per_cycle == zen4.loads_per_cycle == 1.0
    assert zen4.broadcasts_per_cycle == 2.0
    assert zen4.l2_vector_fmas == pytest.approx(2.6, rel=1e-3)
    assert zen4.flop_per_byte(zen4.l3_bytes_per_cycle) == 2.0
    assert zen4.flop_per_byte(zen4.memory_bytes_per_cycle) == 5.0
    assert zen4.sums_in_flight == 4


@pytest.mark.parametrize(
    ("cpu", "per_cycle", "sums"),
    [
        ("znver3", 2.0, 8),
        ("haswell", 2.0, 10),
        ("skylake", 2.0, 8),
        ("skylake-avx512", 2.0, 8),
        ("sapphirerapids", 2.0, 8),
        ("rocketlake", 1.0, 4),
        ("znver5", 2.0, 8),
        ("znver1", 1.0, 5),
    ],
)
def test_two_units_need_as_many_sums_as_they_have_in_flight(cpu, per_cycle, sums):
    result = info(cpu)
    assert (result.fma_per_cycle, result.sums_in_flight) == (per_cycle, sums)


def test_without_avx512_the_same_core_has_vectors_half_as_wide():
    whole, narrow = info("sapphirerapids"), info("sapphirerapids", "-avx512f")
    assert (whole.vector_bytes, narrow.vector_bytes) == (64, 32)
    assert whole.fma_per_cycle == narrow.fma_per_cycle == 2.0
    assert info("znver4", "-avx512f").fma_per_cycle == 2.0


def test_arm_cores_differ_in_their_units():
    assert [arm(cpu).fma_per_cycle for cpu in ("cortex-a53", "cortex-a72", "neoverse-n1")] == [
        0.5,
        1.0,
        2.0,
    ]
    assert arm("neoverse-v1").fma_per_cycle == 4.0
    assert not arm("neoverse-v1").memory_operands


def test_every_core_is_a_name_of_llvms_and_sensible():
    known = {
        triple: [cpu for cpu in _CORES if codegen.llvm_is_valid_cpu(cpu, triple)]
        for triple in ("x86_64-linux-gnu", "aarch64-linux-gnu")
    }
    assert sorted([name for names in known.values() for name in names]) == sorted(_CORES)
    for core in _CORES.values():
        assert core.l1_bytes < core.l2_bytes <= core.l3_bytes
        assert core.memory_rate <= core.l3_rate <= core.l2_rate
    assert core_of("no such name", "x86_64") == Core()


def test_an_unknown_name_is_described_by_its_features():
    text = json.dumps({"kind": "llvm", "mcpu": "x86-64-v3", "mtriple": "x86_64-linux-gnu"})
    result = target_info(resolved(text))
    assert (result.vector_bytes, result.fma_per_cycle) == (32, 2.0)


HASWELL = '{"keys": ["cpu"], "kind": "llvm", "mcpu": "haswell", "num-cores": 2}'
DIRECT = TemplateSpace(TemplateOptions(algorithms=("direct",)))


@settings(max_examples=60, deadline=None)
@given(
    channels=st.integers(1, 40),
    filters=st.integers(1, 40),
    size=st.integers(1, 15),
    kernel=st.sampled_from([1, 3]),
)
def test_sixteen_registers_leave_some_tile_for_every_convolution(channels, filters, size, kernel):
    spec = Conv2dSpec(
        input=[1, channels, size, size], filters=filters, kernel=kernel, padding=kernel // 2,
        layout="NHWC",
    )  # fmt: skip
    space = DIRECT.design_space(spec.task("t", HASWELL))
    assert len(space.first_guesses)
    assert space.legal(space.first_guesses).all()


@pytest.mark.parametrize(
    "spec",
    [
        Conv2dSpec(input=[1, 256, 14, 14], filters=256, kernel=3, padding=1, layout="NHWC"),
        Conv2dSpec(input=[1, 64, 56, 56], filters=64, kernel=1, layout="NHWC"),
        DepthwiseConv2dSpec(input=[1, 96, 56, 56], kernel=3, padding=1, layout="NHWC"),
        DenseSpec(input=[1, 2048], units=1000),
        DenseSpec(input=[128, 768], units=768),
    ],
    ids=["3x3", "1x1", "depthwise", "vector", "matrix"],
)
@pytest.mark.parametrize("cpu", ["haswell", "skylake"])
def test_first_guesses_of_avx2_keep_two_units_busy(cpu, spec):
    target = json.dumps({"keys": ["cpu"], "kind": "llvm", "mcpu": cpu, "num-cores": 2})
    space = DIRECT.design_space(spec.task("t", target))
    values = space.values(space.first_guesses[:4])
    sums = values["tile_rows"] * values["tile_columns"] * values["tile_vectors"]
    assert (sums >= target_info(target).vector_registers // 2).all()
    assert (sums < 16).all()
    assert np.isfinite(space.features(space.first_guesses)).all()


@settings(max_examples=40, deadline=None)
@given(channels=st.integers(1, 5), filters=st.integers(1, 5), size=st.integers(2, 20))
def test_winograd_offers_some_tile_wherever_blocks_waste_little(channels, filters, size):
    spec = Conv2dSpec(
        input=[1, 8 * channels, size, size], filters=8 * filters, kernel=3, padding=1,
        layout="NHWC", output_layout="NHWC",
    )  # fmt: skip
    result = target_info(HASWELL)
    space = WinogradTiling(geometry_of(spec, 8), result, ("winograd2", "winograd4")).space()
    assert len(space.first_guesses)


def test_a_weight_used_once_is_a_memory_operand_on_x86():
    spec = DenseSpec(input=[1, 512], units=512)
    for cpu, most in (("haswell", 12), ("znver4", 16)):
        target = json.dumps({"keys": ["cpu"], "kind": "llvm", "mcpu": cpu, "num-cores": 2})
        space = DIRECT.design_space(spec.task("t", target))
        assert space.values(space.all_legal)["tile_vectors"].max() == most
