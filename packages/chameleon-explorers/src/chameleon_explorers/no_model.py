"""The cost model ``none``, for searches that learn from measurements alone."""

from __future__ import annotations

from chameleon_core.plugins import NoOptions
from chameleon_core.space import Configs
from chameleon_core.stages import CostModel, Observations, Scores, StageContext


class NoCostModel(CostModel):
    """A cost model that is never trained and predicts nothing."""

    def __init__(self, options: NoOptions, context: StageContext) -> None:
        pass

    def fit(self, observations: Observations) -> None:
        """Learn nothing."""

    @property
    def trained(self) -> bool:
        return False

    def predict(self, configs: Configs) -> Scores:
        raise RuntimeError(f"no model to score {len(configs)} configurations with")
