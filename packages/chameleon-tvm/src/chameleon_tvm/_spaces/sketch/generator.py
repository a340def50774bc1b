"""Runs MetaSchedule's space generator without the 24-second import of its tuning context."""

from __future__ import annotations

import attrs
from chameleon_core.plugin_api import ConfigError
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule import _ffi_api

from chameleon_tvm._instructions.tvm_intrinsics import load_tensor_intrinsics
from chameleon_tvm._quick_tvm import Schedule, tvm
from chameleon_tvm._types import FLOAT32, STORAGE
from chameleon_tvm._words import TVM_ERRORS, telling_line

_RULES = {"llvm": "llvm", "cuda": "cuda"}
_TENSORISED_DTYPES = STORAGE.keys() - {FLOAT32}


@attrs.frozen(kw_only=True, eq=False)
class GeneratedSketches:
    """The sketches that TVM's schedule rules derive from one function.

    Attributes:
        base: Schedule of the unscheduled module, to be copied before use.
        sketches: One schedule per sketch, whose trace has sampling instructions.
        postprocessors: MetaSchedule's post-processors, applied in order.
    """

    base: Schedule
    sketches: tuple[Schedule, ...]
    postprocessors: tuple[ms.postproc.Postproc, ...]


def generate(
    function: tvm.tirx.PrimFunc, target: tvm.target.Target, *, rules: str, seed: int
) -> GeneratedSketches:
    """Derive sketches from a function with the schedule rules of a target.

    Raises:
        ConfigError: TVM cannot schedule the function.
    """
    kind = _rule_set(function, target, rules)
    if kind not in _RULES:
        load_tensor_intrinsics()
    module = ms.tune_context._normalize_mod(function)  # noqa: SLF001 - as MetaSchedule does
    try:
        generator = ms.space_generator.PostOrderApply(
            sch_rules=kind, postprocs=kind, mutator_probs=kind
        )
        # The Python class imports every tensor intrinsic first; its FFI constructor does not.
        context = _ffi_api.TuneContext(module, target, generator, None, "main", 1, seed, None)
        _ffi_api.TuneContextInitialize(context)
        sketches = tuple(generator.generate_design_space(module))
        base = Schedule(module)
    except TVM_ERRORS as error:
        raise ConfigError(
            f"TVM cannot schedule this function for {target.kind.name}: {telling_line(error)}",
            hint="Sketches need a TensorIR function of blocks (te.create_prim_func or TVMScript "
            "with T.sblock) that is not scheduled yet.",
        ) from error
    return GeneratedSketches(
        base=base, sketches=sketches, postprocessors=tuple(generator.postprocs)
    )


def _rule_set(function: tvm.tirx.PrimFunc, target: tvm.target.Target, rules: str) -> str:
    if rules != "auto":
        return rules
    kind = str(target.kind.name)
    dtypes = {str(parameter.dtype) for parameter in function.params}
    # TVM 0.27 cannot compile its CUDA rules for tensor cores: lowering rejects tvm_access_ptr with
    # the dtype of the intrinsic.
    if kind != "cuda" and dtypes & _TENSORISED_DTYPES:
        return "from-target"
    return _RULES.get(kind, "from-target")
