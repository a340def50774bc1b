"""Chameleon inside TVM's MetaSchedule: a search strategy, and records for its databases."""

from chameleon_tvm.metaschedule.strategy import ChameleonStrategy
from chameleon_tvm.spaces.sketch.intrinsics import load_tensor_intrinsics

__all__ = ["ChameleonStrategy", "load_tensor_intrinsics"]
