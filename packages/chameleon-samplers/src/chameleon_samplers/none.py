"""The synthesizer ``none``, which adds nothing to a batch."""

from __future__ import annotations

from chameleon_core.plugins import NoOptions
from chameleon_core.space import Configs
from chameleon_core.stages import Candidates, StageContext, Synthesizer, Visited


class NoSynthesizer(Synthesizer):
    """Keeps the sampler's batch, without duplicates, illegal and measured configurations."""

    def __init__(self, options: NoOptions, context: StageContext) -> None:  # noqa: ARG002
        self._space = context.space

    def refine(
        self,
        batch: Configs,
        candidates: Candidates,  # noqa: ARG002 - part of the contract
        visited: Visited,
    ) -> Configs:
        batch = self._space.distinct(batch)
        return batch[visited.fresh(batch) & self._space.legal(batch)]
