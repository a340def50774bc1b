"""The runner ``cuda`` with the CPU standing in, and what it says where there is no GPU."""

import stat

import pytest
from behaviours import Behaviour, config
from chameleon_cli._main import run
from chameleon_core._errors import ExitCode, TargetError
from chameleon_core._measurement import FailureKind
from chameleon_core._plugins.registry import Registry
from chameleon_core._task import Task
from chameleon_core.plugin_api import MeasureJob, StageRef
from chameleon_runners._cuda.monitor import count_gpus, read_gpu_state
from chameleon_runners._cuda.options import CudaOptions
from chameleon_runners._cuda.runner import CudaRunner, device_refs_of

EXPECTED = {
    Behaviour.NONE: None,
    Behaviour.WRONG: FailureKind.WRONG_OUTPUT,
    Behaviour.CRASHES: FailureKind.CRASH,
    Behaviour.HANGS: FailureKind.RUN_TIMEOUT,
}
STATE = "NVIDIA H100, 580.1, GPU-1, 1980, 2619, 1980, 41, 120.50, 0x0000000000000004"


@pytest.fixture
def smi(tmp_path, monkeypatch):
    """Puts a program in the place of nvidia-smi."""

    def install(script):
        program = tmp_path / "nvidia-smi"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)

    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return install


@pytest.mark.full
def test_a_fault_costs_one_worker(hangs_end_soon):
    target = str(Registry.default().create("targets", "tvm").resolve("native"))
    task = Task(name="behaviours", operator="behaviour", arguments={}, target=target, flop=1.0)
    space = StageRef(factory="behaviours:BehaviourSpace")
    options = CudaOptions(
        devices=(0,),
        kind="cpu",
        workers=1,
        run_timeout=100.0,
        run_floor=100.0,
        min_repeats=1,
        max_repeats=1,
    )
    configs = [config(behaviour) for behaviour in EXPECTED]
    with CudaRunner(options) as runner:
        job = MeasureJob(task=task, space=space, configs=configs)
        measurements = {m.config: m.failure for m in runner.measure(job)}
        (device,) = runner.describe()["devices"]
    assert {behaviour: measurements[config(behaviour)] for behaviour in EXPECTED} == EXPECTED
    assert device["name"] == "cpu:0"


def test_gpus_are_those_of_the_driver(smi):
    smi("echo GPU-1; echo GPU-2")
    assert count_gpus() == (2, "")
    listed = device_refs_of(CudaOptions())()
    assert [ref.name for ref in listed] == ["cuda:0", "cuda:1"]
    assert [ref.name for ref in device_refs_of(CudaOptions(devices=(3,)))()] == ["cuda:3"]


@pytest.mark.parametrize(("visible", "count"), [("1", 1), ("GPU-2,GPU-1", 2), ("", 0), ("-1", 0)])
def test_hidden_gpus_are_not_used(smi, monkeypatch, visible, count):
    smi("echo GPU-1; echo GPU-2; echo GPU-3")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert count_gpus()[0] == count


def test_clocks_are_those_of_the_gpu_meant(smi, monkeypatch):
    smi('echo "$1"')
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-9,GPU-7")
    assert read_gpu_state(1).values["name"] == "--id=GPU-7"


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo 'NVIDIA-SMI has failed because it could not communicate'; exit 9", "communicate"),
        ("exit 0", "knows no GPU"),
    ],
)
def test_a_driver_without_a_gpu(smi, script, words):
    smi(script)
    with pytest.raises(TargetError, match=words) as raised:
        device_refs_of(CudaOptions())()
    assert "rpc" in raised.value.hint


def test_no_driver(smi):
    with pytest.raises(TargetError, match="no nvidia-smi here"):
        device_refs_of(CudaOptions())()
    assert "not watched" in read_gpu_state(0).to_json()["clocks"]


def test_clocks_are_for_the_record(smi):
    smi(f"echo '{STATE}'")
    state = read_gpu_state(0).to_json()
    assert state["name"] == "NVIDIA H100"
    assert state["sm_mhz"] == "1980"
    assert state["slowed_down"] is True
    smi(f"echo '{STATE[:-1]}1'")
    assert read_gpu_state(0).slowed_down is False


MODEL = (
    "model: {operators: [dense: {input: [16, 64], units: 64}]}\ntarget: nvidia/nvidia-h100\n"
    "budget: {measurements: 2}\n"
)


def test_a_pipeline_without_a_gpu_ends_with_a_hint(tmp_path, smi, capsys):
    file = tmp_path / "pipeline.yaml"
    file.write_text(f"{MODEL}space: sketch\nrunner: cuda\noutput: {tmp_path / 'run'}\n")
    assert run(["run", str(file)]) == ExitCode.DEVICE
    assert "there is no GPU to measure on" in capsys.readouterr().err


@pytest.mark.parametrize("devices", [[0, 0], [-1]])
def test_devices_are_different_indices(tmp_path, devices, capsys):
    file = tmp_path / "pipeline.yaml"
    file.write_text(f"{MODEL}runner: {{name: cuda, devices: {devices}}}\n")
    assert run(["validate", str(file)]) == ExitCode.USAGE
    assert "indices" in capsys.readouterr().err
