"""Chameleon as a search strategy of TVM's MetaSchedule."""

import chameleon_tvm._quick_tvm
from chameleon_tvm._instructions.tvm_intrinsics import load_tensor_intrinsics
from chameleon_tvm._metaschedule.strategy import ChameleonStrategy

__all__ = ["ChameleonStrategy", "load_tensor_intrinsics"]
