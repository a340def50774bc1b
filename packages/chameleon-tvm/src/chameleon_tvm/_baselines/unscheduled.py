"""Builds an operator's function without a schedule."""

from __future__ import annotations

from collections.abc import Sequence

from chameleon_tvm._building.builder import TVMBuilder
from chameleon_tvm._building.kernel import Program


class UnscheduledBuilder(TVMBuilder):
    """Builds an operator's only unscheduled kernel, whatever the configuration."""

    def program(self, config: Sequence[int]) -> Program:
        del config
        return Program(
            function=self.operator.prim_func(),
            inputs=self.operator.arrange(self.inputs),
            unpack=self.operator.logical,
        )
