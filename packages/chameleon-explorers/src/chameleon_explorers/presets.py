"""Presets made of the built-in stages.

They live with the explorers because the choice of a search algorithm is what tells them apart:
each later algorithm brings its preset along. Every stage is named in full, so that
``chameleon validate`` prints all that a run will do, and a pipeline may override any part.
"""

from __future__ import annotations

from typing import Any

from chameleon_core.plugins import PresetRecord

_AROUND_THE_SEARCH: dict[str, Any] = {
    "target": "native",
    "space": "auto",
    "runner": "local",
    "scheduler": "round-robin",
    "baselines": ["untuned", "onednn"],
    "seed": 0,
}
"""What a preset takes for granted about everything but the search."""

DEFAULT = PresetRecord(
    name="default",
    summary="Annealing in small rounds, for budgets of about 64 measurements per task",
    pipeline={
        **_AROUND_THE_SEARCH,
        # Rounds of 16: within 64 measurements the model learns three times, and a batch keeps
        # every builder busy. The walk looks at fewer configurations than AutoTVM's, in fewer and
        # wider steps, since a step costs a call of the model whatever its width; a part of its
        # chains starts at the best configurations measured, near which most improvements of
        # templates lie. A template's few thousand configurations are all scored.
        "explorer": {
            "name": "annealing",
            "chains": 256,
            "steps": 100,
            "early_stop": 50,
            "elites": 32,
            "exhaustive": True,
        },
        "cost_model": {"name": "xgboost", "objective": "reg"},
        "sampler": {"name": "greedy", "epsilon": 0.05},
        "synthesizer": "none",
        "budget": {"measurements": 64, "batch_size": 16},
    },
)

AUTOTVM = PresetRecord(
    name="autotvm",
    summary="AutoTVM's search with its published numbers: 1000 measurements in rounds of 64",
    pipeline={
        **_AROUND_THE_SEARCH,
        "explorer": {
            "name": "annealing",
            "chains": 128,
            "steps": 500,
            "temperature": 1.0,
            "early_stop": 50,
            "persistent": True,
            "elites": 0,
            "exhaustive": False,
        },
        "cost_model": {
            "name": "xgboost",
            "objective": "reg",
            "max_depth": 3,
            "learning_rate": 0.3,
            "gamma": 1e-4,
            "min_child_weight": 1.0,
        },
        "sampler": {"name": "greedy", "epsilon": 0.05},
        "synthesizer": "none",
        "budget": {"measurements": 1000, "batch_size": 64, "plan_size": 64},
    },
)

PRESETS = (DEFAULT, AUTOTVM)
