"""Suites of the stages that search."""

from __future__ import annotations

from typing import ClassVar

from chameleon_testing.conformance import (
    check_cost_model,
    check_explorer,
    check_sampler,
    check_synthesizer,
)
from chameleon_testing.suites.base import StageSuite


class ExplorerSuite(StageSuite):
    """Checks of an explorer.

    Attributes:
        draws: whether it draws random numbers; False for one that is the same for every seed.
    """

    kind = "explorers"
    draws: ClassVar[bool] = True

    def test_proposals(self) -> None:
        """It proposes legal, distinct, new configurations, best first, from one seed alike."""
        check_explorer(self.make, draws=self.draws)


class CostModelSuite(StageSuite):
    """Checks of a cost model."""

    kind = "cost_models"

    def test_predictions(self) -> None:
        """It learns from measurements, failures among them, and scores each row by itself."""
        check_cost_model(self.make)


class SamplerSuite(StageSuite):
    """Checks of a sampler."""

    kind = "samplers"

    def test_choices(self) -> None:
        """It chooses rows to measure, from one seed alike, out of many, few or no candidates."""
        check_sampler(self.make)


class SynthesizerSuite(StageSuite):
    """Checks of a synthesizer."""

    kind = "synthesizers"

    def test_batches(self) -> None:
        """It mends batches: legal, distinct, new configurations, from one seed alike."""
        check_synthesizer(self.make)
