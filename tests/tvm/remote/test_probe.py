"""The probe asks the processor that it runs on, on any CPU of its architecture."""

import shutil
import subprocess
import tarfile

import pytest
from chameleon_system._permissions import AMX, request_permission
from chameleon_system._processor import own_architecture, this_processor
from chameleon_tvm._building.remote.probe import ask_processor, probe_for
from chameleon_tvm._device.cpus.features import reported_features
from chameleon_tvm._device.cpus.registers import WORDS, decode_processor
from chameleon_tvm._device.linking import LINKER, own_triple
from chameleon_tvm._quick_tvm import tvm

ARM = "aarch64-linux-gnu"
EMULATOR = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")
MAIN = f"""
#include <cstdint>
#include <cstdio>
struct Tensor {{
  void* data;
  int32_t device[2], dimensions;
  uint8_t code, bits;
  uint16_t lanes;
  int64_t *shape, *strides;
  uint64_t offset;
}};
struct Any {{
  int32_t kind, zero;
  union {{ void* pointer; int64_t number; }};
}};
extern "C" int __tvm_ffi_main(void*, const Any*, int32_t, Any*);
int main() {{
  uint32_t words[{WORDS}] = {{}};
  int64_t shape[] = {{{WORDS}}}, strides[] = {{1}};
  Tensor tensor{{words, {{1, 0}}, 1, 1, 32, 1, shape, strides, 0}};
  Any argument{{7, 0, {{&tensor}}}}, result{{}};
  if (__tvm_ffi_main(nullptr, &argument, 1, &result) != 0) return 1;
  for (uint32_t word : words) std::printf("%u ", word);
}}
"""
"""Calls a function of TVM with one tensor, without TVM's run time (tvm/ffi/c_api.h)."""


def load(path):
    return tvm.runtime.load_module(str(path))


@pytest.mark.skipif(own_architecture() not in {"x86_64", "aarch64"}, reason="it has no probe")
def test_this_processor_is_what_linux_says():
    answer = ask_processor(own_triple(), tvm.cpu(), load)
    described = this_processor()
    assert reported_features(answer.processor) == reported_features(described)
    for field in ("architecture", "vendor", "family", "model"):
        assert getattr(answer.processor, field) == getattr(described, field), field
    refused = request_permission(AMX) if "amx_tile" in described.flags else ""
    assert answer.refused == ({AMX: refused} if refused else {})


@pytest.mark.parametrize(
    "triple", ["arm64-apple-darwin", "x86_64-pc-windows-msvc", "riscv64-linux"]
)
def test_other_systems_have_no_probe(triple):
    assert ask_processor(triple, tvm.cpu(), load) is None


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """A program for aarch64 that prints the answer of the probe, and its emulator."""
    compiler = shutil.which("aarch64-linux-gnu-g++")
    if compiler is None or EMULATOR is None:
        pytest.skip("there is no aarch64-linux-gnu-g++ or no qemu-aarch64 (see .ci/run)")
    folder = tmp_path_factory.mktemp("probe")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(LINKER, "none")
        probe_for(ARM).write(folder)
    with tarfile.open(folder / "kernel.tar") as objects:
        objects.extractall(folder, filter="data")
    (folder / "main.cpp").write_text(MAIN)
    words = ["-static", "-o", "program", "main.cpp", *(path.name for path in folder.glob("*.o"))]
    subprocess.run([compiler, *words], cwd=folder, check=True)
    return folder / "program"


@pytest.mark.parametrize(
    ("cpu", "part", "features"),
    [
        ("cortex-a72", 0xD08, {"neon"}),
        ("neoverse-n1", 0xD0C, {"neon", "lse", "rdm", "fullfp16", "dotprod"}),
    ],
)
def test_an_arm_processor_is_asked(program, cpu, part, features):
    command = [EMULATOR, "-cpu", cpu, str(program)]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    processor = decode_processor([*map(int, printed.split())], "aarch64").processor
    assert (processor.vendor, processor.model) == ("0x41", part)
    assert reported_features(processor) == features
