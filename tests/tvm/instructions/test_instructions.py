"""Every instruction computes its meaning, is in compiled code, and has its permission asked."""

import ctypes
import errno
import re

import numpy as np
import pytest
import structlog
from chameleon_core._errors import ChameleonError, TargetError
from chameleon_networks._artifact import load
from chameleon_system._permissions import AMX, AMX_CALL
from chameleon_system._processor import own_architecture
from chameleon_tvm._building.kernel import Program, TVMKernel
from chameleon_tvm._device.cpus.features import target_features
from chameleon_tvm._device.targets import tvm_target
from chameleon_tvm._instructions import emission, selection
from chameleon_tvm._instructions.amx import AmxBfloat16
from chameleon_tvm._instructions.emission import permissions_of, with_instructions, with_preludes
from chameleon_tvm._instructions.multiply_add import IntegerMultiplyAdd, MultiplyAdd
from chameleon_tvm._instructions.neon import Bfmmla
from chameleon_tvm._instructions.records import INSTRUCTIONS
from chameleon_tvm._instructions.selection import (
    instruction_of,
    package_records_of,
    tile_products_of,
)
from chameleon_tvm._instructions.tiles import DATA, SUMS, WEIGHTS
from chameleon_tvm._instructions.x86 import Vdpbf16ps, Vpmaddubsw, Vpmaddwd
from chameleon_tvm._quick_tvm import tirx
from chameleon_tvm._types import BFLOAT16, STORAGE
from chameleon_tvm.testing.instructions import check_instruction, check_meaning, trials_of
from computing import NATIVE, X86, assembly_of, resolved

ARM = "llvm -mtriple=aarch64-linux-gnu -mcpu=generic -mattr=+dotprod,+i8mm,+bf16"
TARGETS = {
    "": (ARM, f"{X86}x86-64", f"{X86}haswell", f"{X86}znver4"),
    "aarch64": (ARM,),
    "f16c": (f"{X86}haswell",),
    "avx2": (f"{X86}haswell", f"{X86}znver4", f"{X86}skylake-avx512"),
    "avx512vnni": (f"{X86}cascadelake", f"{X86}znver4", f"{X86}sapphirerapids"),
    "avxvnni": (f"{X86}alderlake",),
    "avx512bf16": (f"{X86}cooperlake", f"{X86}znver4", f"{X86}sapphirerapids"),
    "avx512fp16": (f"{X86}sapphirerapids",),
    "amx-tile": (f"{X86}graniterapids",),
}
"""CPUs that have what an instruction needs first, or whose architecture it is."""
X86_HERE = own_architecture() == "x86_64"


@pytest.mark.parametrize(
    ("record", "target"),
    [
        pytest.param(record, target, id=f"{record.name}, {target.partition('-mcpu=')[2]}")
        for record in INSTRUCTIONS
        if record.architecture != "cuda"
        for target in TARGETS[
            record.architecture if record.architecture == "aarch64" else (*record.features, "")[0]
        ]
    ],
)
def test_compiled_code_contains_it(record, target):
    assert instruction_of(record).permission == ("amx" if "amx-tile" in record.features else "")
    check_instruction(record, target)


@pytest.mark.parametrize("record", package_records_of(NATIVE), ids=lambda record: record.name)
def test_it_computes_its_meaning_here(record):
    assert check_instruction(record)


def test_what_templates_fall_back_to_computes_its_meaning():
    assert check_meaning(IntegerMultiplyAdd())


@pytest.mark.parametrize("weight", [-64, 64])
@pytest.mark.parametrize("data", [0, 1, 255])
def test_bytes_by_weights_of_seven_bits_do_not_saturate(data, weight):
    first = Vpmaddubsw()
    numbers, weights = np.full(4, data, np.uint8), np.full((1, 4), weight, np.int8)
    start = np.int32([7])
    assert first.meaning(start, numbers, weights) == 7 + 4 * data * weight
    beyond = weights + np.int8(np.sign(weight))
    exact = 7 + 4 * data * int(beyond[0, 0])
    assert (first.meaning(start, numbers, beyond) == exact) == (data < 255)
    first.check_weights(weights)
    with pytest.raises(ChameleonError, match="exact with weights between -64 and 64"):
        first.check_weights(beyond)


class Saturating(MultiplyAdd):
    """Says that sums end at the largest number."""

    def meaning(self, sums, data, weights):
        return np.nan_to_num(super().meaning(sums, data, weights))


class Twice(MultiplyAdd):
    """Says that products count twice."""

    def meaning(self, sums, data, weights):
        return super().meaning(sums, 2 * data, weights)


class Wrapping(Vpmaddwd):
    """Says that products keep their lower 16 bits."""

    def meaning(self, sums, data, weights):
        return super().meaning(sums, data[:1].repeat(2), weights)


class Misnamed(MultiplyAdd):
    mnemonics = ("vpermq",)


@pytest.mark.parametrize(
    ("one", "target", "sentence"),
    [
        (Saturating, "native", "sums are infinite or NaN, or should be"),
        (Twice, "native", "further off than rounding explains"),
        (Misnamed, "native", "none of vpermq in its code"),
        (AmxBfloat16, f"{X86}znver4", "the target .*znver4 lacks it"),
        (Bfmmla, f"{X86}znver4", "the target .*znver4 lacks it"),
    ],
)
def test_what_is_wrong_is_said(one, target, sentence):
    with pytest.raises(AssertionError, match=sentence):
        check_meaning(one(), target)


@pytest.mark.skipif(
    "vpmaddwd" not in [one.name for one in package_records_of(NATIVE)], reason="AVX2"
)
def test_integers_have_to_be_equal():
    with pytest.raises(AssertionError, match="sums differ from its meaning"):
        check_meaning(Wrapping())


def test_multiply_add_is_one_instruction_where_the_cpu_has_it():
    target = resolved(f"{X86}haswell")
    for trial in trials_of(MultiplyAdd(), target_features(tvm_target(target))):
        text = assembly_of(trial.function(), target)
        assert "vfmadd" in text
        assert "mulps" not in text


def in_parallel(trial, target):
    """The assembly of a trial's function, its cases dealt to threads."""
    serial = trial.function()
    loop = serial.body.body if isinstance(serial.body, tirx.AttrStmt) else serial.body
    shared = tirx.For(loop.loop_var, loop.min, loop.extent, tirx.ForKind.PARALLEL, loop.body)
    # An instruction that several parts of a kernel use, among others.
    body = with_preludes(shared, [trial.instruction, trial.instruction, Vpmaddwd()])
    return assembly_of(tirx.PrimFunc(serial.params, body), resolved(target))


def test_what_is_imported_is_inlined_into_parallel_bodies():
    (trial, _) = trials_of(Vdpbf16ps(), frozenset({"avx512bf16", "avx512vl"}))
    text = in_parallel(trial, f"{X86}znver4")
    assert "vdpbf16ps" in text
    assert "chameleon_vdpbf16ps" not in text


def test_tiles_are_configured_and_released_inside_each_parallel_body():
    (trial, _) = trials_of(AmxBfloat16(), AmxBfloat16.features)
    functions = in_parallel(trial, f"{X86}sapphirerapids").split("@function")
    (body,) = [text for text in functions if "tdpbf16ps" in text]
    steps = ["ldtilecfg", "tileloadd", "tileloadd", "tileloadd"]
    steps += ["tdpbf16ps", "tilestored", "tilerelease"]
    matches = re.findall("|".join(sorted(set(steps))), body)
    assert matches == len(matches) // len(steps) * steps


def test_the_configuration_says_what_a_tile_holds():
    """Table 18-2 of the manual's first volume: byte 16 + 2 i and byte 48 + i are of tile i."""
    first = AmxBfloat16()
    registers = [first.register(0, SUMS, 7), first.register(4, DATA, 7), first.register(6, WEIGHTS)]
    array = np.frombuffer(first.configuration(registers), np.uint8)
    assert len(array) == 64
    assert array[0] == 1
    assert array[16:32].view(np.uint16).tolist() == [64, 0, 0, 0, 64, 0, 64, 0]
    assert array[48:56].tolist() == [7, 0, 0, 0, 7, 0, 16, 0]
    assert not array[1:16].any()
    assert not array[56:].any()


def test_bfloat16_is_rounded_to_nearest_even():
    values = np.float32([1.0, 1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20, -2.5, 3e38, 3.4e38])
    expected = [1.0, 1.0, 1 + 2**-6, 1 + 2**-7, -2.5, np.nan, np.inf]
    got = STORAGE[BFLOAT16].rounded(values)
    assert got[:5].tolist() == expected[:5]
    assert abs(got[5] / 3e38 - 1) < 2**-8
    assert got[6] == np.inf
    assert np.isnan(STORAGE[BFLOAT16].rounded(np.float32([np.nan, np.inf, -np.inf]))).tolist() == [
        True,
        False,
        False,
    ]


# -- permissions -----------------------------------------------------------------------------------


SAPPHIRE = "llvm -mtriple=x86_64-linux-gnu -mcpu=sapphirerapids"


@pytest.fixture
def refused(monkeypatch):
    """What the system says to each request, which are kept."""
    asked = []

    def refusal(permission):
        asked.append(permission)
        return "Operation not permitted"

    for module in (selection, emission):
        monkeypatch.setattr(module, "request_permission", refusal)
    selection._is_permitted.cache_clear()
    yield asked
    selection._is_permitted.cache_clear()


def increment():
    buffer = tirx.decl_buffer([1], "float32", "place")
    zero = tirx.IntImm("int32", 0)
    more = tirx.BufferLoad(buffer, [zero]) + tirx.FloatImm("float32", 1.0)
    return tirx.PrimFunc([buffer], tirx.BufferStore(buffer, more, [zero]))


def test_a_function_says_what_its_instructions_need():
    assert permissions_of(increment()) == frozenset()
    assert permissions_of(with_instructions(increment(), [Vpmaddwd()])) == frozenset()
    assert permissions_of(with_instructions(increment(), [AmxBfloat16(), Vpmaddwd()])) == {AMX}


def test_a_kernel_asks_before_it_is_made(refused):
    target = resolved("native")
    inputs = [np.zeros(1, np.float32)]
    TVMKernel(Program(function=increment(), inputs=inputs), target)
    assert not refused
    function = with_instructions(increment(), [AmxBfloat16()])
    with pytest.raises(TargetError, match="refuses AMX to this process: Operation not permitted"):
        TVMKernel(Program(function=function, inputs=inputs), target)
    assert refused == [AMX]


def test_a_refused_permission_is_told_with_its_reason(refused):
    assert selection.refused_permissions(resolved(SAPPHIRE)) == {AMX: "Operation not permitted"}
    assert selection.refused_permissions(resolved(f"{X86}haswell")) == {}
    assert refused == [AMX]


def test_what_the_system_refuses_is_left_out_of_this_machine_s_choices(refused, monkeypatch):
    target = resolved(SAPPHIRE)
    monkeypatch.setattr(selection, "is_this_cpu", lambda _target: False)
    names = [row.name for row in tile_products_of(target, data="bfloat16", weights="bfloat16")]
    assert names == ["tdpbf16ps"]
    assert not refused
    selection._is_permitted.cache_clear()
    monkeypatch.setattr(selection, "is_this_cpu", lambda _target: True)
    with structlog.testing.capture_logs() as said:
        for _ in range(2):
            assert not tile_products_of(target, data="bfloat16", weights="bfloat16")
    (line,) = said
    assert line["event"] == "instructions_left_out"
    assert line["reason"] == "Operation not permitted"


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

    monkeypatch.setattr(load.ctypes, "CDLL", Library)
    return Library


def test_a_delivered_network_asks_for_what_its_manifest_says(system):
    assert load.refusal({"cpu_flags": {}}) == ""
    assert not system.calls
    assert load.refusal({"cpu_flags": {}, "permissions": [AMX]}) == ""
    assert system.calls == [AMX_CALL]


def test_a_delivered_network_is_refused_with_a_sentence(system):
    system.error = errno.EPERM
    manifest = {"cpu_flags": {}, "permissions": [AMX]}
    sentence = "the network needs AMX, and the system refuses arch_prctl: Operation not permitted"
    assert load.refusal(manifest) == sentence
    manifest["cpu_flags"] = {"amx-tile": "amxtile", "avx1024": "avx1024"}
    assert re.match(r"this CPU lacks .*avx1024, which the network", load.refusal(manifest))
