"""Instructions of ARM that a level's CPUs lack are found on any machine."""

import shutil
import subprocess

import pytest
from chameleon_core.plugin_api import NoOptions
from chameleon_networks._delivery.disassembly import foreign_instructions
from chameleon_tvm.api import TVMTargets

ASSEMBLER = shutil.which("aarch64-linux-gnu-gcc")

CODE = {
    "fmopa za0.s, p0/m, p0/m, z0.s, z1.s": "sme",
    "fmla z0.s, p0/m, z1.s, z2.s": "sve",
    "fmlal v0.4s, v1.4h, v2.4h": "fp16fml",
    "fcmla v0.4s, v1.4s, v2.4s, #0": "complxnum",
    "usdot v0.4s, v1.16b, v2.16b": "i8mm",
    "smmla v0.4s, v1.16b, v2.16b": "i8mm",
    "ummla v0.4s, v1.16b, v2.16b": "i8mm",
    "sdot v0.4s, v1.16b, v2.16b": "dotprod",
    "bfmmla v0.4s, v1.8h, v2.8h": "bf16",
    "bfdot v0.4s, v1.8h, v2.8h": "bf16",
    "sqrdmlah v0.4s, v1.4s, v2.4s": "rdm",
    "fmla v0.8h, v1.8h, v2.8h": "fullfp16",
    "scvtf h0, w0": "fullfp16",
    "fcvtl v0.4s, v1.4h": "",
    "fcvt h0, s0": "",
    "fmla v0.4s, v1.4s, v2.4s": "",
    "add v0.8h, v1.8h, v2.8h": "",
    "casal w0, w1, [x2]": "",
    "b.eq .": "",
}
"""Instructions, and the feature beyond ARMv8.0 that each needs."""


@pytest.mark.skipif(ASSEMBLER is None, reason="there is no aarch64-linux-gnu-gcc")
def test_an_instruction_of_arm_needs_a_feature(tmp_path):
    oldest, newer = (
        TVMTargets(NoOptions()).resolve(f"llvm -mtriple=aarch64-linux-gnu -mcpu={cpu}")
        for cpu in ("cortex-a72", "neoverse-v2")
    )
    extensions = "".join(f".arch_extension {one}\n" for one in ("sme", "sve", "fp16fml"))
    for number, (instruction, feature) in enumerate(CODE.items()):
        source, library = tmp_path / f"{number}.s", tmp_path / f"{number}.so"
        source.write_text(f".arch armv8.6-a\n{extensions}{instruction}\n")
        words = [ASSEMBLER, "-shared", "-nostdlib", "-o", library, source]
        if subprocess.run(words, check=False, capture_output=True).returncode:
            pytest.skip("the assembler is old")
        foreign = foreign_instructions(library, oldest)
        assert list(foreign.values()) == [feature] * bool(feature), instruction
        lacking = ["sme"] * (feature == "sme")
        assert list(foreign_instructions(library, newer).values()) == lacking, instruction
