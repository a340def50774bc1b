"""Builds an operator's function as it is written."""

from __future__ import annotations

from collections.abc import Sequence

from chameleon_tvm.building.builder import TVMBuilder
from chameleon_tvm.building.kernel import Program


class UnscheduledBuilder(TVMBuilder):
    """Builds the one program that has no schedule."""

    def program(self, config: Sequence[int]) -> Program:
        del config
        return Program(
            function=self.operator.prim_func(),
            inputs=self.operator.arrange(self.inputs),
            unpack=self.operator.logical,
        )
