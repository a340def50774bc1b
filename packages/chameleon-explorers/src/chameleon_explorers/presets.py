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
    summary="Two models take turns after every few measurements, eager for what they do not know",
    pipeline={
        **_AROUND_THE_SEARCH,
        # What the model thinks best of everything in a space small enough to score as a whole, as
        # templates and recorded tables are; elsewhere chains that never go down and start at the
        # best measured, which reach AutoTVM's final score in a fraction of its steps
        # (benchmarks/search_steps.py, "annealing elites, cold"). One measurement in four goes to
        # a neighbour of the best: on recorded tables the model alone now and then stays beside an
        # optimum that it is wrong about.
        "explorer": {
            "name": "annealing",
            "chains": 128,
            "steps": 40,
            "temperature": 0.0,
            "early_stop": 8,
            "persistent": False,
            "elites": 32,
            "exhaustive": True,
            "neighbours": 0.25,
        },
        # Trees and a Gaussian process take turns, as each is sure and wrong about some spaces
        # (docs/benchmarks.md): trees know conditional knobs and steps, the process what lies
        # between measurements, and how much one measurement tells of another. Both are asked for
        # the uncertain, too, so that a search does not settle at the first good place.
        "cost_model": {
            "name": "alternating",
            "models": [
                {"name": "mixed", "kappa": 3.0},
                {"name": "gaussian-process", "kappa": 2.0},
            ],
        },
        "sampler": {"name": "greedy", "epsilon": 0.05},
        "synthesizer": "none",
        # Rounds as small as the runner can be kept busy with (``Runner.batch_size``); of a long
        # plan the process chooses those that tell most together.
        "budget": {"measurements": 64, "plan_size": 256},
    },
    reasons={
        "space": "A template where there is one for the operator and the target, since its knobs "
        "are few and sure to vectorise; sketches for everything else.",
        "explorer": "What the model thinks best of a whole space that is small enough to score, as "
        "templates are; elsewhere chains that start at the best measured and never go down. One "
        "measurement in four goes to a neighbour of the best, where the model may be wrong.",
        "cost_model": "Trees know knobs that depend on others, a Gaussian process what lies "
        "between measurements; they take turns, for each is sure and wrong about some spaces.",
        "sampler": "What the model thinks best, and one in twenty at random, so that a search "
        "meets what its model is wrong about.",
        "synthesizer": "What the sampler chose is measured as it is: nothing in it has to be "
        "replaced, as centroids of clusters have to be.",
        "runner": "This machine builds, checks and times; another runner tunes for another one.",
        "scheduler": "Each operator has a budget of its own. `gradient` gives more to those that a "
        "network's time depends on, which pays with `scope: network`.",
        "baselines": "What one has without tuning, and what the vendor's library has.",
        "budget": "About what a search needs to come within a twentieth of the best "
        "(docs/benchmarks.md); more finds the rest.",
        "seed": "The same seed proposes the same measurements.",
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
            "neighbours": 0.0,
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
