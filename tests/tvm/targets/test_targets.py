"""Targets: what users write, canonical forms, errors with hints, and facts about CPUs."""

import json

import pytest
from chameleon_core._errors import TargetError
from chameleon_core._loop.start.tasks import TaskSource
from chameleon_core._pipeline.load import from_dict
from chameleon_core.plugin_api import NoOptions
from chameleon_system._processor import own_architecture
from chameleon_tvm._device import targets
from chameleon_tvm._device.cpus.naming import CpuName
from chameleon_tvm._device.targets import TVMTargets, target_info, tvm_target
from computing import resolved
from hypothesis import given, settings
from hypothesis import strategies as st


def describe(target):
    return TVMTargets(NoOptions()).describe(target)


def test_native_means_this_machine():
    target = json.loads(resolved("native"))
    assert target["kind"] == "llvm"
    assert target["mcpu"] != "native"
    assert target["num-cores"] >= 1
    assert resolved("llvm -mcpu=native") == resolved("native")


def test_the_command_line_form_and_json_are_the_same():
    words = resolved("llvm -mcpu=znver4 -num-cores=2")
    assert words == resolved('{"num-cores": 2, "kind": "llvm", "mcpu": "znver4"}')
    assert json.loads(words)["num-cores"] == 2
    assert json.loads(resolved("llvm -mattr=+avx2,+fma -num-cores=1"))["mattr"] == ["+avx2", "+fma"]


def test_a_mapping_in_a_pipeline_gives_tasks_of_the_same_keys():
    model = {"operators": [{"dense": {"input": [8, 8], "units": 8}}]}
    pipelines = (
        from_dict({"model": model, "target": target})
        for target in (
            "llvm -mcpu=znver4 -num-cores=2",
            {"kind": "llvm", "mcpu": "znver4", "num-cores": 2},
        )
    )
    tasks, others = (source.tasks(source.target()) for source in map(TaskSource, pipelines))
    assert [task.key for task in tasks] == [task.key for task in others]
    assert tasks[0].target == others[0].target


@pytest.mark.parametrize("text", ["native", "llvm -mcpu=haswell", "nvidia/nvidia-h100"])
def test_canonical_form_resolves_to_itself(text):
    once = resolved(text)
    assert resolved(once) == once
    assert tvm_target(once).kind.name == json.loads(once)["kind"]


def test_a_tag_is_spelt_out():
    target = json.loads(resolved("nvidia/nvidia-h100"))
    assert target["kind"] == "cuda"
    assert target["arch"].startswith("sm_90")


@pytest.mark.parametrize(
    ("text", "hinted"),
    [
        ("", "native"),
        ("lvm", "llvm"),
        ("llvm -mcpu=znver44", "znver4"),
        ("llvm -mcpu=i386 -mtriple=x86_64-linux-gnu", "native"),
        ("llvm -mcp=znver4", "-mcpu"),
        ("llvm znver4", "mcpu"),
        ("llvm -num-cores=two", "number"),
        ("nvidia/nvidia-h10", "nvidia/nvidia-h100"),
        ("{", "native"),
        ('{"mcpu": "znver4"}', "kind"),
        ('{"kind": "llvm", "colour": 1}', "native"),
        ('{"kind": "llvm", "mcup": "znver4"}', "'mcpu'"),
        ('{"kind": "llvm", "mcpu": 4}', "a string"),
        ('{"kind": "native"}', "target: native"),
    ],
)
def test_a_wrong_target_is_an_error_with_a_hint(text, hinted):
    with pytest.raises(TargetError) as caught:
        resolved(text)
    said = f"{caught.value} {caught.value.hint}"
    assert hinted in said


@settings(max_examples=30)
@given(st.text(max_size=30))
def test_no_text_gives_anything_but_a_target_or_a_target_error(text):
    try:
        target = resolved(text)
    except TargetError as error:
        target, hint = "", error.hint
    assert json.loads(target)["kind"] if target else hint


@pytest.mark.parametrize(
    ("cpu", "lanes", "registers"),
    [("znver4", 16, 32), ("skylake-avx512", 16, 32), ("haswell", 8, 16), ("x86-64", 4, 16)],
)
def test_vectors_follow_from_the_cpu(cpu, lanes, registers):
    info = target_info(resolved(f"llvm -mcpu={cpu} -num-cores=3"))
    assert (info.lanes("float32"), info.vector_registers, info.cores) == (lanes, registers, 3)
    assert info.lanes("float64") == lanes // 2
    assert info.l1_bytes < info.l2_bytes <= info.l3_bytes


def test_arm_has_narrow_vectors_and_many_registers():
    info = target_info(resolved('{"kind": "llvm", "mtriple": "aarch64-linux-gnu"}'))
    assert (info.lanes("float32"), info.vector_registers, info.fma) == (4, 32, True)


def test_a_gpu_has_no_cpu_facts():
    with pytest.raises(TargetError, match="cuda"):
        target_info(resolved("nvidia/nvidia-h100"))


def test_features_of_this_cpu_come_before_those_that_the_user_adds(monkeypatch):
    monkeypatch.setattr(targets, "native_name", lambda: CpuName(mcpu="haswell", mattr=("+gfni",)))
    native = json.loads(resolved("llvm -mcpu=native -mattr=-fma"))
    assert (native["mcpu"], native["mattr"]) == ("haswell", ["+gfni", "-fma"])
    assert resolved(json.dumps(native)) == json.dumps(native)
    assert not target_info(json.dumps(native)).fma


def test_native_is_no_cpu_of_another_architecture():
    other = "x86_64" if own_architecture() == "aarch64" else "aarch64"
    with pytest.raises(TargetError, match="native"):
        resolved(f"llvm -mcpu=native -mtriple={other}-linux-gnu")


def test_a_cpu_is_described_as_json_values():
    described = describe(resolved("llvm -mcpu=znver3 -num-cores=2"))
    assert json.loads(json.dumps(described)) == described
    assert (described["kind"], described["mcpu"], described["cores"]) == ("llvm", "znver3", 2)
    assert {"avx2", "fma"} <= set(described["features"])
    assert "avx512f" not in described["features"]
    assert described["vector_bytes"] == 32


def test_a_gpu_is_described_by_its_limits_where_they_are_known():
    described = describe(resolved("nvidia/nvidia-a100"))
    assert (described["kind"], described["arch"]) == ("cuda", "sm_80")
    assert described["shared_per_multiprocessor"] == 164 * 1024
    assert describe('{"kind": "c"}') == {"kind": "c"}
