"""A delivered library asks the processor itself for the features that its kernels need."""

import shutil
import subprocess

import pytest
from chameleon_networks._c_runtime.linking import SOURCES, compile_c, run_compiler
from chameleon_system._processor import own_architecture
from chameleon_tvm._device.cpus.features import LINUX_NAMES, host_features
from chameleon_tvm.api import reported_bit

EMULATOR = shutil.which("qemu-x86_64-static") or shutil.which("qemu-x86_64")
MAIN = """
#include <stdio.h>
#include "runtime.h"
void set_error(const char *format, ...) { (void)format; }
static const struct feature features[] = {%s};
int main(void) {
  for (int at = 0; at < (int)(sizeof(features) / sizeof(*features)); ++at)
    if (check_processor(&features[at], 1) == 0) puts(features[at].name);
}
"""

pytestmark = pytest.mark.skipif(
    own_architecture() not in LINUX_NAMES, reason="no table of this processor's features"
)


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """A program that prints the features of the processor that runs it."""
    folder = tmp_path_factory.mktemp("processor")
    rows = [
        f'{{"{name}", {", ".join(map(str, reported_bit(name)))}}}'
        for name in [*LINUX_NAMES[own_architecture()], "flight"]
    ]
    (folder / "main.c").write_text(MAIN % ", ".join(rows))
    compile_c(folder / "main.c", folder / "main.o")
    compile_c(SOURCES / "processor.c", folder / "processor.o")
    files = folder / "program", folder / "main.o", folder / "processor.o"
    run_compiler("-o", *map(str, files))
    return folder / "program"


def _features(*command):
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return frozenset(done.stdout.split())


def test_it_finds_what_the_system_reports(program):
    found = _features(program)
    # A system may hide features of its processor, but not add some.
    assert found >= host_features()
    assert "flight" not in found


@pytest.mark.parametrize(
    ("cpu", "has", "lacks"),
    [
        ("Nehalem", {"sse2", "sse4.2", "popcnt"}, {"avx", "fma", "bmi2", "movbe"}),
        ("Haswell", {"avx2", "fma", "bmi2", "movbe", "f16c", "lzcnt"}, {"avx512f", "amx-tile"}),
    ],
)
def test_it_asks_the_emulated_processor_and_not_the_system(program, cpu, has, lacks):
    if EMULATOR is None or own_architecture() != "x86_64":
        pytest.skip("there is no qemu-x86_64 (Debian's package qemu-user-static)")
    # The emulator shows its host's /proc/cpuinfo.
    found = _features(EMULATOR, "-cpu", cpu, str(program))
    assert found >= has
    assert not found & lacks
