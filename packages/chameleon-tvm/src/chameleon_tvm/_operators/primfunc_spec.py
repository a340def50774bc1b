"""The arguments of a user's own TensorIR function in a pipeline file. Cheap to import."""

from __future__ import annotations

from typing import ClassVar

import attrs
from chameleon_core.plugin_api import Task, option

from chameleon_tvm._operators.spec import OperatorSpec, converted_option


@attrs.frozen(kw_only=True)
class PrimFuncSpec(OperatorSpec):
    """The arguments of an operator that is the user's own TensorIR function."""

    kind: ClassVar[str] = "primfunc"

    source: str = option(
        attrs.NOTHING,
        "'path.py:function' or 'package.module:function' that returns a PrimFunc",
        source=True,
    )
    constants: tuple[str, ...] = converted_option("names of inputs that never change", default=())
    reference: str = option(
        "", "a function of NumPy arrays, named as in source; source itself if missing", source=True
    )
    tolerance: float = option(1e-3, "largest |difference| over the largest |expected|", above=0)

    def __attrs_post_init__(self) -> None:
        if not self.source:
            raise self.fail("source is empty", "Write 'path.py:function'.")
        for written in (self.source, self.reference):
            file, _, function = written.rpartition(":")
            if written and not (file and function.isidentifier()):
                raise self.fail(
                    f"{written!r} does not name a function",
                    "Write 'path.py:function' or 'package.module:function'.",
                )

    @property
    def flop(self) -> float:
        # Only TVM can read the function and count its operations.
        return 0.0

    def task(self, name: str, target: str) -> Task:
        from chameleon_tvm._operators.prim_functions import read_function  # noqa: PLC0415 - needs TVM

        called = self.name or name
        arguments, flop = read_function(self.source, self.reference, self.constants, called)
        return Task(
            name=called,
            operator=self.kind,
            arguments={**arguments, "tolerance": self.tolerance},
            target=target,
            flop=flop,
            weight=self.weight,
        )
