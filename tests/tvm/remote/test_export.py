"""What a builder exports computes, elsewhere, what it builds here."""

import ctypes
import os
import shutil
import stat

import attrs
import numpy as np
import pytest
from chameleon_core._errors import TargetError
from chameleon_tvm._building.remote.artifact import read_recipe
from chameleon_tvm._building.remote.failures import ruins_context
from chameleon_tvm._building.remote.kernels import CudaEvents, flush_of
from chameleon_tvm._building.remote.local_device import LocalDevice
from chameleon_tvm._building.remote.smoke_test import smoke_test_for
from chameleon_tvm._device.linking import LINKER, architecture, linking_for
from chameleon_tvm._device.targets import tvm_target
from chameleon_tvm._operators.base import operator_of
from chameleon_tvm._quick_tvm import Schedule, tvm
from chameleon_tvm._rivals.recorded import RecordedOptions, RecordedSchedule
from chameleon_tvm._spaces.sketch.packing import layout_free
from chameleon_tvm._spaces.template.options import TemplateOptions
from chameleon_tvm._spaces.template.provider import TemplateSpace
from chameleon_tvm.api import DenseSpec
from computing import resolved

MIB = 1 << 20
FAT_BINARY = b"\x50\xed\x55\xba"
"""What nvcc's output begins with."""


@pytest.fixture(scope="module")
def native():
    return resolved("native")


@pytest.fixture(scope="module")
def made(native):
    """A builder of a small product, and two configurations."""
    task = DenseSpec(input=(16, 32), units=48).task("product", native)
    space = TemplateSpace(TemplateOptions())
    configs = space.design_space(task).sample(2, np.random.default_rng(0))
    return space.builder(task, threads=1), [tuple(int(i) for i in row) for row in configs]


@pytest.fixture
def exported(made, tmp_path):
    """The builder and the first configuration, which is exported to the test's folder."""
    builder, (config, _) = made
    builder.export(config, tmp_path)
    return builder, config


@pytest.fixture(scope="module")
def device(native):
    result = LocalDevice("cpu", 0)
    result.prepare(native, cache_bytes=64 * MIB, cooldown=0.0)
    return result


def test_an_artifact_computes_what_the_kernel_does(exported, device, tmp_path):
    builder, config = exported
    kernel = device.load(tmp_path)
    shutil.rmtree(tmp_path)
    (expected,), tolerance = builder.reference()
    (output,) = kernel.outputs()
    assert np.abs(output - expected).max() <= tolerance * np.abs(expected).max()
    assert np.array_equal(output, builder.build(config).outputs()[0])


@pytest.mark.usefixtures("exported")
@pytest.mark.parametrize("cold", [0, MIB])
def test_it_is_timed_where_it_runs(device, tmp_path, cold):
    seconds = device.load(tmp_path).repeats(3, 2, cold_bytes=cold)
    assert len(seconds) == 2
    assert min(seconds) > 0


@pytest.mark.usefixtures("exported")
def test_caches_of_devices_that_are_no_cpu_are_emptied_by_copies(device, tmp_path):
    loader = attrs.evolve(device._loader, flush=flush_of("cuda", has_preprocessor=True))
    seconds = loader.load(tmp_path).repeats(2, 3, cold_bytes=MIB)
    assert len(seconds) == 3
    assert min(seconds) > 0


class Driver:
    """Stands in for the library of NVIDIA's driver, and writes its calls into a list."""

    def __init__(self, status=0):
        self.calls = []
        self._status = status

    def __getattr__(self, name):
        def call(*arguments):
            self.calls.append(name)
            if name == "cuEventElapsedTime":
                arguments[0]._obj.value = 0.5
            if name == "cuGetErrorName":
                arguments[1]._obj.value = b"CUDA_ERROR_ILLEGAL_ADDRESS"
            return self._status if name == "cuEventSynchronize" else 0

        return call


@pytest.mark.usefixtures("exported")
def test_cold_runs_on_a_gpu_are_timed_between_events(device, tmp_path, monkeypatch):
    driver = Driver()
    monkeypatch.setattr(ctypes, "CDLL", lambda _: driver)
    loader = attrs.evolve(device._loader, events=CudaEvents(tvm.cpu()))
    assert loader.load(tmp_path).repeats(2, 3, cold_bytes=MIB) == (5e-4,) * 3
    assert driver.calls.count("cuEventCreate") == 2
    assert driver.calls[-4:] == ["cuEventRecord"] * 2 + ["cuEventSynchronize", "cuEventElapsedTime"]


def test_the_driver_names_a_fault_that_ends_the_process(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda _: Driver(status=700))
    with pytest.raises(RuntimeError, match="ILLEGAL_ADDRESS") as raised:
        CudaEvents(tvm.cpu()).seconds(lambda: None, MIB)
    assert ruins_context(raised.value)


@pytest.mark.full
def test_a_schedule_of_metaschedule_is_exported(native, device, tmp_path):
    operator = DenseSpec(input=(16, 32), units=48)
    task = operator.task("product", native)
    function = layout_free(operator_of(task).prim_func(), ())
    stage = RecordedSchedule(RecordedOptions(trace=Schedule(function).trace.as_json()))
    builder = stage.builder(task, "recorded", threads=1)
    builder.export((), tmp_path)
    (expected,), _ = builder.reference()
    np.testing.assert_allclose(device.load(tmp_path).outputs()[0], expected, rtol=1e-4, atol=1e-4)


def test_a_spoilt_context_ends_the_process(device, monkeypatch, capsys):
    def leave(status):
        raise SystemExit(status)

    monkeypatch.setattr(os, "_exit", leave)
    with pytest.raises(SystemExit), device._calls():
        raise RuntimeError("CUDA: an illegal memory access was encountered")
    assert "illegal memory access" in capsys.readouterr().err
    with pytest.raises(RuntimeError, match="another shape"), device._calls():
        raise RuntimeError("argument 0 has another shape")


def test_activations_of_all_candidates_are_one_file(made, tmp_path):
    builder, configs = made
    digests = []
    for number, config in enumerate(configs):
        folder = tmp_path / str(number)
        folder.mkdir()
        builder.export(config, folder)
        digests.append(read_recipe(folder).inputs[0].digest)
    assert digests[0] == digests[1]


@pytest.mark.usefixtures("exported")
def test_inputs_stay_on_the_device(native, tmp_path):
    fresh = LocalDevice("cpu", 0)
    fresh.prepare(native, cache_bytes=64 * MIB, cooldown=0.0)
    buffers = fresh._loader.buffers
    fresh.load(tmp_path)
    sent = buffers.sent
    assert sent > 0
    fresh.load(tmp_path)
    assert buffers.sent == sent


@pytest.mark.usefixtures("exported")
def test_a_small_cache_forgets_and_goes_on(native, tmp_path):
    small = LocalDevice("cpu", 0)
    small.prepare(native, cache_bytes=1, cooldown=0.0)
    outputs = [small.load(tmp_path).outputs()[0] for _ in range(2)]
    assert np.array_equal(outputs[0], outputs[1])
    assert small._loader.buffers.sent > len(read_recipe(tmp_path).inputs)


def test_objects_are_linked_where_they_run(made, device, tmp_path, monkeypatch):
    builder, (config, _) = made
    monkeypatch.setenv(LINKER, "none")
    builder.export(config, tmp_path)
    assert read_recipe(tmp_path).library == "kernel.tar"
    assert np.array_equal(device.load(tmp_path).outputs()[0], builder.build(config).outputs()[0])


# -- other machines -------------------------------------------------------------------------


def test_without_a_cross_compiler_objects_are_sent(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv(LINKER, raising=False)
    assert linking_for(tvm_target(resolved("native"))).name == "kernel.so"
    board = tvm_target(resolved("llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72"))
    assert linking_for(board).name == "kernel.tar"


@pytest.mark.parametrize("vendor", ["", "unknown-", "conda-"])
def test_a_cross_compiler_on_the_path_is_used(vendor, monkeypatch, tmp_path):
    monkeypatch.delenv(LINKER, raising=False)
    compiler = tmp_path / "aarch64-linux-gnu-g++"
    compiler.write_text("#!/bin/sh\nexit 0\n")
    compiler.chmod(compiler.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(tmp_path))
    board = tvm_target(resolved(f"llvm -mtriple=aarch64-{vendor}linux-gnu -mcpu=cortex-a72"))
    assert linking_for(board).name == "kernel.so"


def test_a_library_for_a_board_is_one_for_its_processor(monkeypatch):
    monkeypatch.setenv(LINKER, "none")
    trial = smoke_test_for(resolved("llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72"))
    assert "kernel.tar" in trial.files


@pytest.mark.parametrize(
    ("triple", "name"),
    [
        ("arm64-apple-darwin", "aarch64"),
        ("x86_64-conda-linux-gnu", "x86_64"),
        ("AMD64-x", "x86_64"),
    ],
)
def test_architectures_have_one_name_each(triple, name):
    assert architecture(triple) == name


def test_a_target_of_another_kind_is_refused(native):
    with pytest.raises(TargetError, match="cuda"):
        LocalDevice("cpu", 0).prepare(resolved("nvidia/nvidia-h100"), cache_bytes=MIB, cooldown=0)
    with pytest.raises(TargetError, match="cpu"):
        LocalDevice("cuda", 0).prepare(native, cache_bytes=MIB, cooldown=0.0)


@pytest.mark.skipif(tvm.cuda(0).exist, reason="there is a GPU")
def test_no_gpu_is_a_sentence_with_a_hint():
    with pytest.raises(TargetError, match="cuda") as raised:
        LocalDevice("cuda", 0).prepare(
            resolved("nvidia/nvidia-h100"), cache_bytes=MIB, cooldown=0.0
        )
    assert raised.value.hint


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="there is no nvcc")
def test_cuda_is_compiled_to_machine_code_without_a_gpu():
    trial = smoke_test_for(resolved("nvidia/nvidia-h100"))
    (library,) = (data for name, data in trial.files.items() if name.startswith("kernel"))
    assert FAT_BINARY in library
    assert b"__global__" not in library, "it is the source"
