"""CUDA targets: limits filled in by architecture, and errors that say what to write."""

import json

import pytest
from chameleon_core._errors import TargetError
from chameleon_tvm._device.gpus import gpu_info
from chameleon_tvm._quick_tvm import tvm
from computing import resolved


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90", "sm_90a"])
def test_an_architecture_is_enough_of_a_target(arch):
    target = resolved(f"cuda -arch={arch}")
    info = gpu_info(target)
    assert (info.arch, info.warp_size, info.max_threads_per_block) == (arch, 32, 1024)
    assert info.max_shared_memory_per_block == 48 * 1024
    assert info.registers_per_block == 64 * 1024
    assert resolved(target) == target
    assert json.loads(target)["max_shared_memory_per_block"] == 48 * 1024


def test_newer_multiprocessors_hold_more():
    old, new = (gpu_info(resolved(f"cuda -arch={arch}")) for arch in ("sm_75", "sm_90"))
    assert old.threads_per_multiprocessor < new.threads_per_multiprocessor
    assert old.shared_per_multiprocessor < new.shared_per_multiprocessor


def test_what_the_user_writes_stands():
    info = gpu_info(resolved("cuda -arch=sm_80 -max_shared_memory_per_block=16384"))
    assert info.max_shared_memory_per_block == 16384


def test_a_tag_has_the_limits():
    assert gpu_info(resolved("nvidia/nvidia-h100")).arch == "sm_90a"


@pytest.mark.parametrize(
    ("text", "hinted"),
    [("cuda -arch=sm_33", "sm_80"), ("cuda -arch=ampere", "sm_80"), ("cuda -arch=sm_999", "sm_90")],
)
def test_an_unknown_architecture_is_an_error_with_a_hint(text, hinted):
    with pytest.raises(TargetError) as caught:
        resolved(text)
    assert hinted in caught.value.hint


@pytest.mark.skipif(tvm.runtime.device("cuda").exist, reason="this machine has a GPU to ask")
def test_without_a_device_the_architecture_has_to_be_named():
    with pytest.raises(TargetError, match="no architecture") as caught:
        resolved("cuda")
    assert "-arch" in caught.value.hint


@pytest.mark.parametrize("target", ['{"kind": "llvm"}', '{"kind": "cuda"}'])
def test_only_a_cuda_target_with_an_architecture_is_described(target):
    with pytest.raises(TargetError):
        gpu_info(target)
