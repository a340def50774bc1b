"""Registers the TVM pipeline ``chameleon-network``, which lowers the functions of a network."""

from __future__ import annotations

from typing import Any

from chameleon_tvm.api import (
    LANES,
    keeping_nan,
    loops_of,
    plain_loops_pipeline,
    tirx,
)

from chameleon_networks._graph.relax_utils import LOOPS_ATTRIBUTE, PLAIN_LOOPS, tvm

PIPELINE = "chameleon-network"


def _unwrap_loops(function: Any) -> Any:
    """Turn a scheduled function into plain loops without TVM's blocks."""
    if any(name in (function.attrs or {}) for name in (LANES, LOOPS_ATTRIBUTE)):
        return loops_of(function)
    return function.with_body(function.body.block.body)


def _network_pipeline() -> tuple[Any, Any, Any]:
    """A short pipeline for functions of plain loops, and TVM's default pipeline for all others."""
    plain, host, device = tirx.get_tir_pipeline(plain_loops_pipeline())
    usual, _, _ = tirx.get_tir_pipeline("default")

    def both(module: Any, _context: Any) -> Any:
        marked = {
            variable: _unwrap_loops(function)
            for variable, function in module.functions_items()
            if any(name in (function.attrs or {}) for name in (PLAIN_LOOPS, LANES))
        }
        others = {
            variable: function.with_body(keeping_nan(function.body))
            for variable, function in module.functions_items()
            if variable not in marked
        }
        lowered = plain(tvm.IRModule(marked, attrs=module.attrs))
        if others:
            lowered.update(usual(tvm.IRModule(others, attrs=module.attrs)))
        # LLVM's code generator refuses variables that functions share, as specialized kernels do.
        return tirx.transform.ConvertSSA()(lowered)

    network = tvm.transform.module_pass(both, opt_level=0, name="ChameleonNetwork")
    return network, host, device


tirx.register_tir_pipeline(PIPELINE, _network_pipeline)
