"""An instruction of other CPUs that this machine computes with loops."""

import pytest
from chameleon_tvm._emit import widening
from chameleon_tvm._instructions.base import BFLOAT16_BITS, Dot
from chameleon_tvm._quick_tvm import tirx
from chameleon_tvm._spaces.template import arithmetic
from chameleon_tvm._types import BFLOAT16, STORAGE


class Pairs(Dot):
    """What AVX512-BF16 computes, on any CPU, but for how denormals are rounded."""

    name = "pairs"
    summary = "pairs of bfloat16"
    mnemonics = ("mulps",)
    data = weights = BFLOAT16_BITS
    sums = "float32"
    depth = 2
    vectors = {16: frozenset(), 32: frozenset(), 64: frozenset()}

    def meaning(self, sums, data, weights):
        return sums + STORAGE[BFLOAT16].real(weights) @ STORAGE[BFLOAT16].real(data)

    def emit(self, sums, data, weights, lanes):
        words = tirx.reinterpret(f"int32x{lanes}", weights)

        def half(vector, place):
            bits = (vector >> tirx.Broadcast(tirx.IntImm("int32", 16 * place), lanes)) & (
                tirx.Broadcast(tirx.IntImm("int32", 0xFFFF), lanes)
            )
            return widening(STORAGE[BFLOAT16], tirx.Cast(f"uint16x{lanes}", bits))

        for place in (1, 0):
            sums += half(data, place) * half(words, place)
        return sums


@pytest.fixture
def only_pairs(monkeypatch):
    """Templates multiply pairs of bfloat16, whatever this machine's CPU has."""
    monkeypatch.setattr(arithmetic, "dots_of", lambda target, data, weights: [Pairs()])
