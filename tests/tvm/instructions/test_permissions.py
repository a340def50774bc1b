"""Kernels, choices and delivered networks ask for what the system has to grant."""

import ctypes
import errno

import numpy as np
import pytest
import structlog
from chameleon_core.errors import TargetError
from chameleon_networks.package import machine
from chameleon_system.permissions import AMX, AMX_CALL
from chameleon_tvm.building.kernel import Program, TVMKernel
from chameleon_tvm.instructions import choosing, emission
from chameleon_tvm.instructions.amx import AmxBfloat16
from chameleon_tvm.instructions.choosing import tile_products_of
from chameleon_tvm.instructions.emission import permissions_of, using
from chameleon_tvm.instructions.vpmaddwd import Vpmaddwd
from chameleon_tvm.quick_tvm import tirx
from computing import resolved

SAPPHIRE = "llvm -mtriple=x86_64-linux-gnu -mcpu=sapphirerapids"


@pytest.fixture
def refused(monkeypatch):
    """What the system says to each request, which are kept."""
    asked = []

    def refusal(permission):
        asked.append(permission)
        return "Operation not permitted"

    for module in (choosing, emission):
        monkeypatch.setattr(module, "refusal", refusal)
    choosing._permitted.cache_clear()
    yield asked
    choosing._permitted.cache_clear()


def increment():
    buffer = tirx.decl_buffer([1], "float32", "place")
    zero = tirx.IntImm("int32", 0)
    more = tirx.BufferLoad(buffer, [zero]) + tirx.FloatImm("float32", 1.0)
    return tirx.PrimFunc([buffer], tirx.BufferStore(buffer, more, [zero]))


def test_a_function_says_what_its_instructions_need():
    assert permissions_of(increment()) == frozenset()
    assert permissions_of(using(increment(), [Vpmaddwd()])) == frozenset()
    assert permissions_of(using(increment(), [AmxBfloat16(), Vpmaddwd()])) == {AMX}


def test_a_kernel_asks_before_it_is_made(refused):
    target = resolved("native")
    inputs = [np.zeros(1, np.float32)]
    TVMKernel(Program(function=increment(), inputs=inputs), target)
    assert not refused
    function = using(increment(), [AmxBfloat16()])
    with pytest.raises(TargetError, match="refuses AMX to this process: Operation not permitted"):
        TVMKernel(Program(function=function, inputs=inputs), target)
    assert refused == [AMX]


def test_what_the_system_refuses_is_left_out_of_this_machine_s_choices(refused, monkeypatch):
    target = resolved(SAPPHIRE)
    names = [row.name for row in tile_products_of(target, data="bfloat16", weights="bfloat16")]
    assert names == ["tdpbf16ps"]
    choosing._permitted.cache_clear()
    monkeypatch.setattr(choosing, "is_this_cpu", lambda _target: True)
    with structlog.testing.capture_logs() as said:
        for _ in range(2):
            assert not tile_products_of(target, data="bfloat16", weights="bfloat16")
    (line,) = said
    assert line["event"] == "instructions_left_out"
    assert line["because"] == "Operation not permitted"


@pytest.fixture
def system(monkeypatch):
    """Stands in for the C library: keeps calls, and answers with a number of an error or 0."""

    class Library:
        calls = []
        error = 0

        def __init__(self, name, *, use_errno):
            assert name is None
            assert use_errno

        def syscall(self, *words):
            self.calls.append(tuple(word.value for word in words))
            ctypes.set_errno(self.error)
            return -1 if self.error else 0

    monkeypatch.setattr(machine.ctypes, "CDLL", Library)
    return Library


def test_a_delivered_network_asks_for_what_its_manifest_says(system):
    machine.check_processor({"cpu_flags": {}})
    assert not system.calls
    machine.check_processor({"cpu_flags": {}, "permissions": [AMX]})
    assert system.calls == [AMX_CALL]


def test_a_delivered_network_is_refused_with_a_sentence(system):
    system.error = errno.EPERM
    manifest = {"cpu_flags": {}, "permissions": [AMX]}
    sentence = "the network needs AMX, and the system refuses arch_prctl: Operation not permitted"
    with pytest.raises(RuntimeError, match=sentence):
        machine.check_processor(manifest)
    manifest["cpu_flags"] = {"amx-tile": "amxtile", "avx1024": "avx1024"}
    with pytest.raises(RuntimeError, match=r"this CPU lacks .*avx1024, which the network"):
        machine.check_processor(manifest)
