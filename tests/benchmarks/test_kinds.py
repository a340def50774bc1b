"""Code for every kind of CPU gives the right results, on a CPU of another kind."""

import os
import subprocess
import sys

import kinds
import numpy as np
import pytest
from chameleon_system._processor import parse_cpuinfo
from chameleon_tvm._device.cpus.naming import closest_cpu_name
from chameleon_tvm._device.targets import target_info
from chameleon_tvm._instructions.selection import package_records_of
from computing import resolved
from programs import completed

ONNX, TORCH = kinds.SUITES

CASES = {
    "AVX2": ("float32/pytorch-converted/test_Conv2d", "int8/pytorch-converted/test_Conv2d"),
    "AVX-512": ("float16/pytorch-converted/test_Conv2d", "int8/node/test_matmul_2d"),
    "VNNI": ("int8/pytorch-converted/test_Conv2d", "float32/node/test_qlinearconv"),
    "BF16": ("bfloat16/pytorch-converted/test_Conv2d", "bfloat16/node/test_matmul_2d"),
    "AMX": (
        *(
            f"{precision}/pytorch-converted/test_Conv2d"
            for precision in ("float32", "bfloat16", "int8")
        ),
        "int8/node/test_matmul_2d",
    ),
    "Zen 5": ("bfloat16/pytorch-converted/test_Conv2d", "int8/pytorch-converted/test_Conv2d"),
    "aarch64": (
        *(f"{precision}/pytorch-converted/test_Conv2d" for precision in ("bfloat16", "int8")),
        # The example of a bundle took an empty output for a missing one.
        "float32/node/test_causal_conv_with_state_kernel_size_one",
    ),
}
"""A few cases for each kind whose instructions no other kind here has, those with its own."""


def _here(kind):
    if lacking := kinds.KINDS[kind].missing_flags():
        pytest.skip(f"code for it does not run here without {lacking}")
    return kind


@pytest.fixture
def tiles_anywhere(monkeypatch):
    """Code for AMX goes without vector instructions that this CPU lacks; tiles are emulated."""
    others = kinds.KINDS["AMX"].features - kinds.TILES
    monkeypatch.setattr(kinds, "_SPARED", kinds._SPARED | others)


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(
            kind, marks=pytest.mark.full if kind in {"AMX", "aarch64"} else pytest.mark.long
        )
        for kind in CASES
    ],
)
def test_networks_are_right(kind, request):
    if kind == "AMX":
        request.getfixturevalue("tiles_anywhere")
    outcomes = [*kinds.run_kind(ONNX, _here(kind), CASES[kind])]
    assert {one.case: (one.kind, one.reason) for one in outcomes if one.kind != "right"} == {}
    assert [one.case for one in outcomes] == list(CASES[kind])


X86_ONLY = pytest.mark.skipif(
    kinds.own_architecture() != "x86_64", reason="kinds of x86 CPUs need an x86 CPU"
)


@X86_ONLY
def test_each_kind_has_the_instructions_of_one_that_is_run():
    def instructions(kind):
        target = resolved(kinds.KINDS[kind].target)
        names = [record.name for record in package_records_of(target)]
        return (target_info(target).vector_bytes, *names)

    run = [*map(instructions, CASES)]
    assert len({*run}) == len(run)
    assert {*map(instructions, kinds.KINDS)} == {*run}


# The names among which Linux's flags cannot tell.
NAMES = {"AMX-FP16": "sapphirerapids", "Zen 2": "znver3"}


@pytest.mark.parametrize("kind", [name for name, kind in kinds.KINDS.items() if kind.mcpu])
def test_native_is_the_kind_of_the_faked_description(kind):
    processor = parse_cpuinfo(kinds.KINDS[kind].cpuinfo, "x86_64")
    name = closest_cpu_name(processor, "x86-64", "x86_64-unknown-linux-gnu")
    assert name.command_line() == f"-mcpu={NAMES.get(kind, kinds.KINDS[kind].mcpu)}"


@X86_ONLY
@pytest.mark.parametrize(
    ("missing", "lacking", "options"),
    [
        (set(), "", ""),
        ({"avx512fp16"}, "", " -mattr=-avx512fp16"),
        (kinds.TILES, "", ""),
        (kinds.TILES | {"avx512bf16"}, "avx512bf16", ""),
        # Tiles are emulated all or not at all.
        ({"amx-int8"}, "amx-int8", ""),
    ],
)
def test_a_kind_says_what_this_cpu_lacks(missing, lacking, options, monkeypatch):
    kind = kinds.KINDS["AMX"]
    monkeypatch.setattr(kinds, "host_features", lambda: kind.features - missing)
    assert kind.missing_flags() == lacking
    assert kind.target == f"llvm -mcpu=sapphirerapids{options}"


@pytest.mark.full
def test_a_kind_that_does_not_run_here_has_no_rows(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(kinds.Kind, "missing_flags", lambda _kind: "a wheel")
    monkeypatch.setattr(kinds, "SUITES", (ONNX,))
    monkeypatch.setattr(sys, "argv", ["kinds.py", "--kinds", "AMX", "--out", str(tmp_path)])
    assert kinds.main() == 0
    printed = capsys.readouterr()
    assert "OnnxKindCases-AMX: code for it does not run here without a wheel" in printed.err
    assert "| AMX" not in printed.out


INSTRUCTIONS = """
import sys
from chameleon_core.plugin_api import NoOptions
from chameleon_tvm._device.targets import TVMTargets
from chameleon_tvm._instructions.selection import package_records_of
from chameleon_tvm.testing.instructions import check_instruction

for record in package_records_of(TVMTargets(NoOptions()).resolve(sys.argv[1])):
    assert check_instruction(record, sys.argv[1]), record.name
    print(record.name)
"""


def _instructions(kind, folder):
    """The names of a CPU's instructions, each checked, and the numbers of emulated products."""
    counts = folder / "counts"
    environment = {
        **os.environ,
        **kinds.KINDS[kind].environment(folder),
        "OTHER_CPU_COUNTS": str(counts),
    }
    words = [sys.executable, "-c", INSTRUCTIONS, kinds.KINDS[kind].target]
    done = completed(words, env=environment)
    products = [*map(int, counts.read_text().split())] if counts.exists() else [0, 0]
    return set(done.stdout.split()), products


@pytest.mark.full
@pytest.mark.usefixtures("tiles_anywhere")
def test_instructions_of_amx_compute_their_meaning(tmp_path):
    names, products = _instructions(_here("AMX"), tmp_path)
    assert names >= {"tdpbf16ps", "tdpbusd"}
    assert [count > 0 for count in products] == [kinds.emulates_tiles()] * 2


@pytest.mark.full
def test_instructions_that_a_kind_lacks_are_not_in_its_code(tmp_path):
    assert "vpdpbusd" not in _instructions(_here("AVX-512"), tmp_path)[0]


PRODUCT = """
#include SOURCE
int main(void) {
  const struct instruction tdpbf16ps = {
      .opcode = 0x5C, .prefix = 2, .mode = 3, .reg = 0, .rm = 1, .vvvv = 2};
  for (int tile = 0; tile < 3; ++tile) rows[tile] = ROWS, row_bytes[tile] = ROW_BYTES;
  if (fread(tiles, sizeof(struct tile), 3, stdin) != 3 || !execute(&tdpbf16ps)) return 1;
  return fwrite(tiles, sizeof(struct tile), 1, stdout) != 1;
}
"""
"""A product of tiles in the emulator, on a CPU with AMX, too."""

SUMS = [
    # A sum, and the pairs whose products are added to it, those at even and at odd places.
    (1.5, [(2.0, 3.0)], [(4.0, 0.5)], 9.5),
    (2.0**-130, [], [], 0.0),  # denormal: the sum before
    (1.0, [(2.0**-130, 2.0**127)], [], 1.0),  # an operand
    (0.0, [(2.0**-70, 2.0**-60)], [], 0.0),  # a product
    (1.5 * 2.0**-126, [(-(2.0**-63), 2.0**-63)], [], 0.0),  # the sum after
    # Rounded to 24 bits, it is below the smallest normal number.
    (0.0, [(2.0**-63, 2.0**-63), (-(2.0**-75), 2.0**-75)], [], 0.0),
    # A product is not rounded, and not infinite, before it is added.
    (0.0, [(-(2.0**64), 2.0**63), (2.0**64, 2.0**64)], [], 2.0**127),
    # Each place has a sum of its own, of which one is even at a tie.
    (0.0, [(2.0**12, 2.0**12)], [(1.0, 1.0), (1.0, 1.0)], 2.0**24 + 2),
    (0.0, [(2.0**12, 2.0**12), (1.0, 1.0)], [], 2.0**24),
]


def test_emulated_products_are_rounded_and_flushed_as_amx_does_it(tmp_path):
    _here("AMX")
    sums, left, right = (np.zeros((16, 16, *more), np.float32) for more in ((), (2,), (2,)))
    for number, (start, *places, _) in enumerate(SUMS):
        sums[number, number] = start
        for place, pairs in enumerate(places):
            for group, (first, second) in enumerate(pairs):
                left[number, group, place], right[group, number, place] = first, second
    bits = [(array.view(np.uint32) >> 16).astype(np.uint16) for array in (left, right)]
    program = tmp_path / "product"
    command = ["cc", "-O2", "-x", "c", f'-DSOURCE="{kinds.SOURCE}"', "-o", program, "-"]
    subprocess.run(command, input=PRODUCT.encode(), check=True)
    tiles = b"".join(array.tobytes() for array in (sums, *bits))
    done = subprocess.run([program], input=tiles, capture_output=True, check=True)
    got = np.frombuffer(done.stdout, np.float32).reshape(16, 16).diagonal()
    assert got[: len(SUMS)].tolist() == [expected for *_, expected in SUMS]


@pytest.mark.long
@pytest.mark.parametrize("kind", CASES)
def test_no_answer_of_a_sample_is_wrong(kind):
    cases = [*kinds.drawn(ONNX, _here(kind), 0.004)]
    outcomes = [*kinds.run_kind(ONNX, kind, cases)]
    allowed = {"right", "refused", "no network"}
    assert {one.case: one.reason for one in outcomes if one.kind not in allowed} == {}
    assert sum(one.kind == "right" for one in outcomes) > len(cases) / 4
