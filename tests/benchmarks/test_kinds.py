"""Code for every kind of CPU gives the right results, on a CPU of another kind."""

import os
import sys

import kinds
import pytest
from programs import completed

ONNX, TORCH = kinds.SUITES

CASES = {
    "AVX2": ("float32/pytorch-converted/test_Conv2d", "int8/pytorch-converted/test_Conv2d"),
    "AVX-512": ("float16/pytorch-converted/test_Conv2d", "int8/node/test_matmul_2d"),
    "VNNI": ("int8/pytorch-converted/test_Conv2d", "float32/node/test_qlinearconv"),
    "BF16": ("bfloat16/pytorch-converted/test_Conv2d", "bfloat16/node/test_matmul_2d"),
    "AMX": (
        *(f"{precision}/pytorch-converted/test_Conv2d" for precision in ("bfloat16", "int8")),
        "int8/node/test_matmul_2d",
    ),
    "aarch64": (
        *(f"{precision}/pytorch-converted/test_Conv2d" for precision in ("bfloat16", "int8")),
        # The example of a bundle took an empty output for a missing one.
        "float32/node/test_causal_conv_with_state_kernel_size_one",
    ),
}
"""A few cases for each kind, those with its own instructions."""


def _here(kind):
    if lacking := kinds.KINDS[kind].lacking():
        pytest.skip(f"code for it does not run here without {lacking}")
    return kind


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=[] if kind in {"AMX", "aarch64"} else [pytest.mark.long])
        for kind in CASES
    ],
)
def test_networks_are_right(kind):
    outcomes = [*kinds.run_kind(ONNX, _here(kind), CASES[kind])]
    assert {one.case: (one.kind, one.reason) for one in outcomes if one.kind != "right"} == {}
    assert [one.case for one in outcomes] == list(CASES[kind])


INSTRUCTIONS = """
from chameleon_core.plugins import NoOptions
from chameleon_tvm.device.targets import TVMTargets
from chameleon_tvm.instructions.choosing import own_records_of
from chameleon_tvm.testing.instructions import check_instruction

for record in own_records_of(TVMTargets(NoOptions()).resolve("native")):
    assert check_instruction(record), record.name
    print(record.name)
"""


def _instructions(kind, folder):
    """The names of the instructions that a CPU has, each checked; and products of tiles."""
    counts = folder / "counts"
    environment = {
        **os.environ,
        **kinds.KINDS[kind].environment(folder),
        "OTHER_CPU_COUNTS": str(counts),
    }
    done = completed([sys.executable, "-c", INSTRUCTIONS], env=environment)
    products = [*map(int, counts.read_text().split())] if counts.exists() else [0, 0]
    return set(done.stdout.split()), products


def test_instructions_of_amx_compute_their_meaning(tmp_path):
    names, products = _instructions(_here("AMX"), tmp_path)
    assert names >= {"tdpbf16ps", "tdpbusd"}
    assert min(products) > 0


def test_native_is_the_kind_of_the_faked_description(tmp_path):
    assert "vpdpbusd" not in _instructions(_here("AVX-512"), tmp_path)[0]


@pytest.mark.long
@pytest.mark.parametrize("kind", kinds.KINDS)
def test_no_answer_of_a_sample_is_wrong(kind):
    cases = [*kinds.drawn(ONNX, _here(kind), 0.004)]
    outcomes = [*kinds.run_kind(ONNX, kind, cases)]
    allowed = {"right", "refused", "no network"}
    assert {one.case: one.reason for one in outcomes if one.kind not in allowed} == {}
    assert sum(one.kind == "right" for one in outcomes) > len(cases) / 4
