"""The presets ``paper`` and ``release``: CHAMELEON as published, and as its code was released.

Where the paper and the code released with it differ, each preset has its own number: see the
paper's tables 7 and 9, and its section 3.
"""

from __future__ import annotations

from typing import Any

from chameleon_core.plugins import PresetRecord

PPO_PAPER: dict[str, Any] = {
    "name": "ppo",
    # Table 7.
    "episodes": 128,
    "steps": 500,
    # Section 3.2: the configuration is the state, an action turns every knob down, up or not at
    # all, and the score is the reward. The paper does not say how often the agent learns; its
    # episodes come one after the other. Here they walk together, and it learns on the way.
    "horizon": 20,
    "early_stop": 0,
    "end_share": None,
    "network": "shared",
    "width": 20,
    "temperature": 1.0,
    "moves": 0.0,
    "jumps": False,
    "masking": False,
    "reward": "score",
    "keep_best": False,
    "illegal_penalty": 0.0,
    "elites": 0,
    "restarts": 0.0,
    # Table 9.
    "learning_rate": 1e-3,
    "discount": 0.9,
    "gae": 0.99,
    "epochs": 3,
    "clip": 0.3,
    "value_coefficient": 1.0,
    "entropy": 0.1,
    "entropy_end": None,
    "minibatch": None,
    "transfer": False,
}
"""The explorer with the paper's hyper-parameters (tables 7 and 9)."""

PPO_RELEASE: dict[str, Any] = {
    **PPO_PAPER,
    "end_share": 0.75,
    "network": "separate",
    "temperature": 0.1,
    "clip": 0.2,
    "entropy": 0.3,
    "minibatch": 32,
}
"""The explorer with the numbers and networks of the released code."""

_AROUND_THE_SEARCH: dict[str, Any] = {
    "target": "native",
    "space": "auto",
    "cost_model": {
        "name": "xgboost",
        "objective": "reg",
        "max_depth": 3,
        "learning_rate": 0.3,
        "gamma": 1e-4,
        "min_child_weight": 1.0,
    },
    "runner": "local",
    "scheduler": "round-robin",
    "baselines": ["untuned", "onednn"],
    "seed": 0,
    # Table 7: 16 iterations, the equivalent of 1000 measurements in batches of at most 64. The
    # sampler clusters what the exploration found, of which the best are kept.
    "budget": {"measurements": 1000, "batch_size": 64, "plan_size": 512},
}
"""What both presets have in common; the cost model's parameters are AutoTVM's."""

PAPER = PresetRecord(
    name="paper",
    summary="CHAMELEON as published: PPO, adaptive sampling to the letter, sample synthesis",
    pipeline={
        **_AROUND_THE_SEARCH,
        "explorer": PPO_PAPER,
        "sampler": {
            "name": "kmeans-knee",
            "threshold": 2.5,
            "smallest": 8,
            "largest": 64,
            "step": 1,
            "knobs": "all",
            "scaled": False,
            "representative": "floor",
        },
        "synthesizer": "mode",
    },
)

RELEASE = PresetRecord(
    name="release",
    summary="CHAMELEON as the code released with the paper has it",
    pipeline={
        **_AROUND_THE_SEARCH,
        "explorer": PPO_RELEASE,
        "sampler": {
            "name": "kmeans-knee",
            "threshold": 2.5,
            "smallest": 8,
            "largest": 64,
            "step": 8,
            "knobs": "widest",
            "scaled": False,
            "representative": "floor",
        },
        # It has no synthesis: what cannot be measured is drawn at random, as the loop does.
        "synthesizer": "none",
    },
)

PUBLISHED = (PAPER, RELEASE)
"""Both presets."""
