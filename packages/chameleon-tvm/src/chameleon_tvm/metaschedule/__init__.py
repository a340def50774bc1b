"""Chameleon inside TVM's MetaSchedule: a search strategy, and records for its databases."""

from chameleon_tvm.instructions.tvm_intrinsics import load_tensor_intrinsics
from chameleon_tvm.metaschedule.strategy import ChameleonStrategy

__all__ = ["ChameleonStrategy", "load_tensor_intrinsics"]
