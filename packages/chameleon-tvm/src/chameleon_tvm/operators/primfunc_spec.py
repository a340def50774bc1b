"""The arguments of a user's own TensorIR function in a pipeline file. Cheap to import."""

from __future__ import annotations

from typing import ClassVar

import attrs
from chameleon_core.task import Task

from chameleon_tvm.operators.spec import OperatorSpec, helped


@attrs.frozen(kw_only=True)
class PrimFuncSpec(OperatorSpec):
    """The arguments of an operator that is the user's own TensorIR function."""

    kind: ClassVar[str] = "primfunc"

    source: str = attrs.field(
        metadata={
            **helped("'path.py:function' or 'package.module:function' that returns a PrimFunc"),
            "source": True,
        }
    )
    constants: tuple[str, ...] = attrs.field(
        default=(), converter=tuple, metadata=helped("names of inputs that never change")
    )
    reference: str = attrs.field(
        default="",
        metadata={
            **helped("a function of NumPy arrays, named as in source; source itself if missing"),
            "source": True,
        },
    )
    tolerance: float = attrs.field(
        default=1e-3,
        validator=attrs.validators.gt(0),
        metadata=helped("largest |difference| over the largest |expected|"),
    )

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
        # Counted on the function itself, which only TVM can read.
        return 0.0

    def task(self, name: str, target: str) -> Task:
        from chameleon_tvm.operators.prim_functions import read_function  # noqa: PLC0415 - TVM

        called = self.name or name
        read = read_function(self.source, self.reference, self.constants, called)
        return Task(
            name=called,
            operator=self.kind,
            arguments={**read.arguments, "tolerance": self.tolerance},
            target=target,
            flop=read.flop,
            weight=self.weight,
        )
