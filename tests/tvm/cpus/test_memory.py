"""Memory bandwidth is measured when asked for, kept, and read from there."""

import json
import math
import re
import sys

import pytest
from chameleon_cli._main import run
from chameleon_core._errors import ExitCode
from chameleon_tvm._commands import cpu_measurement as measuring
from chameleon_tvm._device.cpus.memory import rate_file, store_memory_rate, stored_memory_rate
from chameleon_tvm._device.targets import target_info
from chameleon_tvm._spaces.template.arithmetic import describe_arithmetic
from computing import resolved
from programs import completed


@pytest.fixture(autouse=True)
def cache_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    target_info.cache_clear()
    yield tmp_path
    target_info.cache_clear()


def native():
    return resolved("native")


def test_what_is_kept_is_what_this_cpu_is_described_with():
    target = native()
    values = json.loads(target)
    before = target_info(target).memory_bytes_per_cycle
    store_memory_rate(values["mcpu"], values["num-cores"], before / 3)
    store_memory_rate("another", values["num-cores"], 99.0)
    target_info.cache_clear()
    assert target_info(target).memory_bytes_per_cycle == before / 3
    other = {**values, "num-cores": values["num-cores"] + 1}
    assert target_info(json.dumps(other)).memory_bytes_per_cycle == before


@pytest.mark.parametrize("text", ["", "[1]", "{", '{"x": 1}'])
def test_a_damaged_file_is_no_file(text):
    rate_file().parent.mkdir(parents=True)
    rate_file().write_text(text)
    assert stored_memory_rate("haswell", 2) is None
    store_memory_rate("haswell", 2, 3.5)
    assert stored_memory_rate("haswell", 2) == 3.5


def test_the_command_measures_and_keeps(monkeypatch, capsys):
    monkeypatch.setenv("TVM_NUM_THREADS", "2")  # which the command sets otherwise
    monkeypatch.setattr(measuring, "_CYCLES", 1000)
    monkeypatch.setattr(measuring, "_LEAST_BYTES", 1 << 16)
    monkeypatch.setattr(measuring, "_TIMES_L3", 0)
    assert run(["cpu", "--measure", "--json"]) == ExitCode.OK
    document = json.loads(capsys.readouterr().out)
    values = document["target"]
    rate = stored_memory_rate(values["mcpu"], values["num-cores"])
    assert rate is not None
    assert 0.0 < rate < math.inf
    assert document["description"]["memory_bytes_per_cycle"] == rate
    assert document["features"] == sorted(document["features"])
    assert "multiply-add" in document["instructions"]
    assert document["kernels"] == describe_arithmetic(native())


def test_another_cpu_is_shown_and_not_measured(capsys):
    assert run(["cpu", "--target", "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72"]) == 0
    shown = capsys.readouterr().out
    assert "vector bytes" in shown
    assert re.search(r"^kernels +float32: neon FMA; float16: ", shown, re.MULTILINE)
    other = ["cpu", "--measure", "--target", "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a53"]
    assert run(other) != ExitCode.OK
    assert not rate_file().exists()


THREADS = """
from chameleon_core.plugin_api import NoOptions
from chameleon_tvm._commands import cpu_measurement
from chameleon_tvm._device.targets import TVMTargets, target_info
from chameleon_tvm._quick_tvm import tvm

cpu_measurement._fastest_repeat = lambda program, target: 1.0
target = TVMTargets(NoOptions()).resolve("llvm -mcpu=native -num-cores=7")
cpu_measurement.measure(target, target_info(target))
print(tvm.get_global_func("runtime.NumThreads")())
"""


@pytest.mark.full
def test_all_cores_are_measured(monkeypatch):
    monkeypatch.delenv("TVM_NUM_THREADS", raising=False)
    assert completed([sys.executable, "-c", THREADS]).stdout.split() == ["7"]
