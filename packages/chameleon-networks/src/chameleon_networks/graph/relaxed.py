"""Relax imported without torch; modules of this folder take it from here."""

from __future__ import annotations

from chameleon_tvm.quick_tvm import tvm, without

with without("torch"):
    from tvm import relax

__all__ = ["relax", "tvm"]
