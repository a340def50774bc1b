"""A server that cannot run a target's kernels is refused with both sides named."""

import json
from pathlib import Path

import attrs
import pytest
from chameleon_core.errors import TargetError
from chameleon_system.processor import parse_cpuinfo
from chameleon_tvm.building.remote.facts import ServerFacts, ask, check, own_facts, own_version
from chameleon_tvm.device.cpus.naming import name_of, native_name
from chameleon_tvm.quick_tvm import codegen
from computing import ARM, X86, resolved

CPUINFO = Path(__file__).parents[1] / "cpus" / "cpuinfo"


def own(**other):
    triple = str(codegen.llvm_get_system_triple())
    cpu = str(codegen.llvm_get_system_cpu())
    return ServerFacts(**{"tvm": own_version(), "triple": triple, "cpu": cpu, **other})


@pytest.mark.parametrize("facts", [own(), ServerFacts()], ids=["told", "silent"])
def test_this_machine_runs_its_own_kernels(facts):
    accepts(facts, "native")


def accepts(facts, text, *, exists=True):
    check("board:1", facts, resolved(text), exists=exists)


def refusal(facts, text, *, exists=True):
    with pytest.raises(TargetError) as raised:
        accepts(facts, text, exists=exists)
    assert raised.value.hint
    return str(raised.value)


def test_another_tvm():
    said = refusal(own(tvm="0.18.0"), "native")
    assert "0.18.0" in said
    assert own_version() in said


def test_a_patch_of_the_same_release_is_none():
    release = ".".join(own_version().split(".")[:2])
    accepts(own(tvm=f"{release}.99"), "native")


def test_another_architecture():
    board = own(triple="aarch64-linux-gnu", cpu="cortex-a72")
    said = refusal(board, "llvm -mtriple=x86_64-linux-gnu")
    assert "aarch64" in said
    assert "x86_64" in said


def test_vectors_that_the_processor_lacks():
    board = own(triple="x86_64-linux-gnu", cpu="haswell")
    said = refusal(board, f"{X86}skylake-avx512")
    assert "haswell" in said
    assert "avx512" in said
    accepts(board, f"{X86}haswell")
    accepts(board, f"{X86}sandybridge")


def test_a_device_that_is_not_there():
    assert "no cuda device" in refusal(own(), "nvidia/nvidia-h100", exists=False)


@pytest.mark.parametrize(("has", "fits"), [("9.0", True), ("8.0", False), ("10.0", False)])
def test_compute_capability(has, fits):
    facts = own(gpu="a GPU", compute=has)
    if fits:
        accepts(facts, "nvidia/nvidia-h100")
    else:
        assert has in refusal(facts, "nvidia/nvidia-h100")


def test_the_flags_of_a_server_count_more_than_its_name():
    guest = own(triple="x86_64-linux-gnu", cpu="rocketlake")
    text = f"{X86}sapphirerapids"
    assert "amx-tile" in refusal(guest, text)
    output = name_of(
        parse_cpuinfo((CPUINFO / "graniterapids-guest").read_text(), "x86_64"),
        "rocketlake",
        "x86_64-linux-gnu",
    )
    accepts(attrs.evolve(guest, cpu=output.mcpu, mattr=output.mattr), text)


def test_a_server_whose_processor_llvm_does_not_know_is_tried():
    accepts(own(triple="aarch64-linux-gnu", cpu="generic"), f"{ARM}neoverse-v1")


@pytest.mark.parametrize("serves", [True, False], ids=["ours", "plain"])
def test_asking_takes_what_there_is(serves):
    functions = {"target.llvm_get_system_cpu": lambda: "cortex-a72"}
    if serves:
        functions["chameleon.server.facts"] = own_facts

    def function(name):
        if name not in functions:
            raise AttributeError(name)
        return functions[name]

    facts = ask(function, None, "cpu")
    native = native_name()
    if serves:
        assert facts == ServerFacts(tvm=own_version(), cpu=native.mcpu, mattr=native.mattr)
    else:
        assert facts == ServerFacts(cpu="cortex-a72")
    assert json.loads(json.dumps(facts.to_json()))["cpu"] == facts.cpu
