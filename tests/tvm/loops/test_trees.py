"""Nodes of the kinds that are asked for are found, those of derived kinds included."""

from chameleon_tvm._quick_tvm import te, tirx, tvm
from chameleon_tvm._spaces.loops.trees import find_nodes


def test_a_search_for_some_kinds_meets_what_one_for_all_finds_of_them():
    x = te.placeholder((8, 6), "float32", "x")
    chosen = te.compute(
        (8, 6), lambda i, j: tirx.if_then_else(j < 3, te.exp(x[i, j]) / 2.0, x[i, 5 - j]), "y"
    )
    body = te.create_prim_func([x, chosen]).body
    everything = find_nodes(body, object)
    for kinds in (
        (tvm.ir.TensorLoad,),
        (tirx.LT, tirx.LE),
        (tvm.ir.Call, tirx.Div, tirx.BufferStore),
    ):
        met = find_nodes(body, kinds)
        wanted = [node for node in everything if isinstance(node, kinds)]
        assert wanted
        assert len(met) == len(wanted)
        assert all(row.same_as(other) for row, other in zip(met, wanted, strict=True))
