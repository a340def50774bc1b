"""A server that cannot run a target's kernels is refused with both sides named."""

import json
from pathlib import Path

import attrs
import pytest
from chameleon_core._errors import TargetError
from chameleon_system._permissions import AMX
from chameleon_system._processor import parse_cpuinfo
from chameleon_tvm._building.remote import facts as facts_module
from chameleon_tvm._building.remote.facts import (
    ServerFacts,
    ask,
    check,
    own_facts,
    query_local,
    tvm_version,
)
from chameleon_tvm._device.cpus.naming import closest_cpu_name, native_name
from chameleon_tvm._device.cpus.registers import Reported
from chameleon_tvm._device.linking import own_triple
from chameleon_tvm._quick_tvm import tvm
from computing import ARM, X86, resolved
from structlog.testing import capture_logs

CPUINFO = Path(__file__).parents[1] / "cpus" / "cpuinfo"


def own(**other):
    name = native_name()
    facts = {"tvm": tvm_version(), "triple": own_triple(), "cpu": name.mcpu, "mattr": name.mattr}
    return ServerFacts(**{**facts, **({"mattr": ()} if "cpu" in other else {}), **other})


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


REFUSED = [
    ({"tvm": "0.18.0"}, "native", ["0.18.0", tvm_version()], []),
    (
        {"triple": "aarch64-linux-gnu", "cpu": "cortex-a72"},
        "llvm -mtriple=x86_64-linux-gnu",
        ["aarch64", "x86_64"],
        [],
    ),
    (
        {"triple": "x86_64-linux-gnu", "cpu": "haswell"},
        f"{X86}skylake-avx512",
        ["haswell", "avx512"],
        ["haswell", "sandybridge"],
    ),
    (
        {"triple": "x86_64-linux-gnu", "cpu": "sapphirerapids", "refused": {AMX: "not permitted"}},
        f"{X86}sapphirerapids -mattr=+prefer-256-bit",
        ["refuses AMX", "not permitted"],
        ["icelake-server", "sapphirerapids -mattr=-amx-tile"],
    ),
]


@pytest.mark.parametrize(
    ("facts", "target", "said", "accepted"), REFUSED, ids=["tvm", "architecture", "cpu", "system"]
)
def test_what_a_server_cannot_run_is_refused_with_its_reason(facts, target, said, accepted):
    board = own(**facts)
    text = refusal(board, target)
    assert [words for words in said if words not in text] == []
    for cpu in accepted:
        accepts(board, f"{X86}{cpu}")


def test_a_patch_of_the_same_release_is_none():
    release = ".".join(tvm_version().split(".")[:2])
    accepts(own(tvm=f"{release}.99"), "native")


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
    output = closest_cpu_name(described("graniterapids-guest"), "rocketlake", "x86_64-linux-gnu")
    accepts(attrs.evolve(guest, cpu=output.mcpu, mattr=output.mattr), text)


def test_a_server_whose_processor_llvm_does_not_know_is_tried():
    accepts(own(triple="aarch64-linux-gnu", cpu="generic"), f"{ARM}neoverse-v1")


def described(name):
    return parse_cpuinfo((CPUINFO / name).read_text(), "x86_64")


def test_a_masked_model_number_refuses_nothing():
    text = f"{X86}sapphirerapids"
    guest = own(triple="x86_64-linux-gnu", cpu="rocketlake", guessed=True)
    with capture_logs() as logs:
        accepts(guest, text)
    (warning,) = logs
    assert warning["event"] == "processor_only_guessed"
    assert "amx-tile" in warning["problem"]
    with capture_logs() as logs:
        accepts(guest, f"{X86}rocketlake")
    assert logs == []


def test_a_server_that_serves_reports_what_it_is_refused(monkeypatch):
    monkeypatch.setattr(facts_module, "host_features", lambda: frozenset({"amx-tile"}))
    monkeypatch.setattr(facts_module, "request_permission", lambda permission: f"no {permission}")
    assert json.loads(own_facts())["refused"] == {AMX: "no amx"}
    monkeypatch.setattr(facts_module, "host_features", lambda: frozenset({"avx2"}))
    assert json.loads(own_facts())["refused"] == {}


def test_this_process_goes_by_its_flags():
    facts = query_local(tvm.cpu(), "cpu")
    name = native_name()
    assert (facts.tvm, facts.cpu, facts.mattr) == (tvm_version(), name.mcpu, name.mattr)
    assert not facts.guessed


def server_of(functions):
    """A server's functions, by their names."""

    def function(name):
        if name not in functions:
            raise AttributeError(name)
        return functions[name]

    return function


def test_asking_our_own_server():
    functions = {"chameleon.server.facts": own_facts, "target.llvm_get_system_cpu": lambda: "i386"}
    facts = ask(server_of(functions), None, "cpu")
    name = native_name()
    assert (facts.tvm, facts.cpu, facts.mattr) == (tvm_version(), name.mcpu, name.mattr)
    assert json.loads(json.dumps(facts.to_json()))["cpu"] == facts.cpu


PLAIN = {
    "target.llvm_get_system_triple": lambda: "x86_64-linux-gnu",
    "target.llvm_get_system_cpu": lambda: "rocketlake",
}
"""Functions of a server that has TVM alone."""


def test_the_processor_of_a_plain_server_is_asked():
    answer = Reported(processor=described("graniterapids-guest"), refused={AMX: "not permitted"})
    facts = ask(
        server_of(PLAIN),
        None,
        "cpu",
        processor=lambda triple: answer if triple == "x86_64-linux-gnu" else None,
    )
    assert (facts.cpu, facts.mattr, facts.guessed) == ("sapphirerapids", (), False)
    assert facts.to_json()["refused"] == {AMX: "not permitted"}


def test_without_an_answer_the_model_number_is_a_guess():
    facts = ask(server_of(PLAIN), None, "cpu")
    assert facts == ServerFacts(triple="x86_64-linux-gnu", cpu="rocketlake", guessed=True)
    assert ask(server_of({}), None, "cpu") == ServerFacts()
