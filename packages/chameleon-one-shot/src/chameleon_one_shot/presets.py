"""The preset ``one-shot``: one exploration by a predictor trained beforehand."""

from __future__ import annotations

from chameleon_core.plugins import PresetRecord

ONE_SHOT = PresetRecord(
    name="one-shot",
    summary="One exploration by a predictor trained beforehand; the best few are measured",
    # All else is the default's, so that tasks unlike those that the predictor knows are tuned as
    # by default.
    pipeline={
        "cost_model": {"name": "one-shot", "model": "auto", "finetune": False},
        # No random picks: eight measurements are too few to learn from them.
        "sampler": {"name": "greedy", "epsilon": 0.0},
        # All in one batch: nothing is learnt in between (Ryu et al. 2022, section 4.5). A search of
        # what it does not know ends after three batches that bring nothing.
        "budget": {
            "measurements": 8,
            "batch_size": 8,
            "plan_size": 256,
            "unpredicted": 64,
            "patience": 24,
        },
    },
)

PRESETS = (ONE_SHOT,)

__all__ = ["ONE_SHOT", "PRESETS"]
