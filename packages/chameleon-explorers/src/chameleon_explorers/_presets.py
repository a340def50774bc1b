"""The built-in presets: named pipelines of built-in stages.

Each preset names every stage, so that ``chameleon validate`` prints all that a run will do.
"""

from __future__ import annotations

from typing import Any

from chameleon_core.plugin_api import PresetRecord

_OTHER_STAGES: dict[str, Any] = {
    "target": "native",
    "space": "auto",
    "runner": "local",
    "scheduler": "round-robin",
    "baselines": ["untuned", "onednn"],
    "seed": 0,
}
"""The stages and options outside the search, which all presets share."""

DEFAULT = PresetRecord(
    name="default",
    summary="Two cost models take turns, and prefer configurations about which they are uncertain",
    pipeline={
        **_OTHER_STAGES,
        # A small space is scored as a whole. In a large space, chains at temperature 0 that start
        # at the best configurations need a fraction of AutoTVM's steps to reach its final score.
        # The row "annealing elites, cold" of benchmarks/search_steps.py shows this. Neighbours of
        # the best get a quarter of the measurements, because the model may be wrong about them.
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
        # Each model is wrong about some spaces (docs/benchmarks.md): trees model conditional knobs
        # and steps, the Gaussian process interpolates and knows its uncertainty.
        "cost_model": {
            "name": "alternating",
            "models": [{"name": "mixed", "kappa": 3.0}, {"name": "gaussian-process", "kappa": 2.0}],
        },
        "sampler": {"name": "greedy", "epsilon": 0.05},
        "synthesizer": "none",
        # The runner sets the size of batches (``Runner.batch_size``); the Gaussian process
        # chooses the most informative batch of a long plan.
        "budget": {"measurements": 64, "plan_size": 256},
    },
    reasons={
        "space": "A template if there is one for the operator and the target: it has few knobs, "
        "and its kernels use vectors. Other operators get a sketch, which TVM's rules generate.",
        "explorer": "If a design space is small, the cost model scores all of its configurations. "
        "Otherwise simulated annealing at temperature 0 starts at the best measured "
        "configurations. A quarter of each batch are neighbours of the best one, because the "
        "model may be wrong about them.",
        "cost_model": "Boosted trees and a Gaussian process take turns, because each is wrong "
        "about some design spaces, and a search with one model does not notice its errors.",
        "sampler": "The configurations with the best scores. One in twenty is random, so that the "
        "cost model learns from all parts of the design space.",
        "synthesizer": "Replaces nothing, because the sampler `greedy` selects only configurations "
        "that can be measured.",
        "runner": "Builds, checks and times kernels on this machine. Other runners use remote "
        "devices, GPUs or recorded tables.",
        "scheduler": "Gives each operator the same number of batches. For a network with `scope: "
        "network`, choose `gradient`: it prefers operators on which the network's time depends.",
        "baselines": "TVM's kernel without tuning, and the kernel of Intel's library oneDNN.",
        "budget": "On recorded tables, this search needed 17 to 105 measurements to reach 95 % of "
        "the best speed (docs/benchmarks.md). With more, a search may find a faster kernel.",
        "seed": "The same seed and measurements give the same proposals.",
    },
)

_AUTOTVM_TREES = {
    "name": "xgboost",
    "objective": "reg",
    "max_depth": 3,
    "learning_rate": 0.3,
    "gamma": 1e-4,
    "min_child_weight": 1.0,
}

AUTOTVM = PresetRecord(
    name="autotvm",
    summary="AutoTVM's search with its published numbers: 1000 measurements in rounds of 64",
    pipeline={
        **_OTHER_STAGES,
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
        "cost_model": _AUTOTVM_TREES,
        "sampler": {"name": "greedy", "epsilon": 0.05},
        "synthesizer": "none",
        "budget": {"measurements": 1000, "batch_size": 64, "plan_size": 64},
    },
)

PRESETS = (DEFAULT, AUTOTVM)

_MODEL_FREE_STAGES: dict[str, Any] = {
    **_OTHER_STAGES,
    "cost_model": "none",
    # No random picks: these explorers propose random configurations themselves.
    "sampler": {"name": "greedy", "epsilon": 0.0},
    "synthesizer": "none",
}
"""The stages that all presets without a cost model share."""

LOCAL = PresetRecord(
    name="local",
    summary="Iterated local search on measurements alone",
    pipeline={
        **_MODEL_FREE_STAGES,
        "explorer": {"name": "local", "share": 0.5, "climbs": 1, "kick": 2, "restart": 1.0},
        "budget": {"measurements": 256},
    },
)

DROPLET = PresetRecord(
    name="droplet",
    summary="Coordinate descent with growing steps, on measurements alone",
    pipeline={
        **_MODEL_FREE_STAGES,
        "explorer": {"name": "droplet", "kick": 2},
        "budget": {"measurements": 256},
    },
)

GENETIC = PresetRecord(
    name="genetic",
    summary="AutoTVM's genetic algorithm, on measurements alone",
    pipeline={
        **_MODEL_FREE_STAGES,
        "explorer": {
            "name": "genetic",
            "population": 100,
            "elites": 3,
            "mutation": 0.1,
            "fitness": "measured",
        },
        "budget": {"measurements": 1000, "batch_size": 64},
    },
)

MODEL_FREE = (LOCAL, DROPLET, GENETIC)

PPO_PAPER: dict[str, Any] = {
    "name": "ppo",
    # Table 7 of the paper.
    "episodes": 128,
    "steps": 500,
    # Section 3.2: the configuration is the state, an action moves every knob down, up or not at
    # all, and the score is the reward. The paper does not say how often the agent learns.
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
    # Table 9 of the paper.
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
"""Options of the explorer ``ppo`` as in Ahn et al. (2020), tables 7 and 9."""

PPO_RELEASE: dict[str, Any] = {
    **PPO_PAPER,
    "end_share": 0.75,
    "network": "separate",
    "temperature": 0.1,
    "clip": 0.2,
    "entropy": 0.3,
    "minibatch": 32,
}
"""Options of the explorer ``ppo`` as in the code that was released with Ahn et al. (2020)."""

_PUBLISHED: dict[str, Any] = {
    **_OTHER_STAGES,
    "cost_model": _AUTOTVM_TREES,
    # Table 7: 16 iterations, the equivalent of 1000 measurements in batches of at most 64.
    "budget": {"measurements": 1000, "batch_size": 64, "plan_size": 512},
}
"""The stages that ``paper`` and ``release`` share; the cost model's parameters are AutoTVM's."""

_KNEE: dict[str, Any] = {
    "name": "kmeans-knee",
    "threshold": 2.5,
    "smallest": 8,
    "largest": 64,
    "step": 1,
    "knobs": "all",
    "scaled": False,
    "representative": "floor",
}

PAPER = PresetRecord(
    name="paper",
    summary="CHAMELEON as published: PPO, adaptive sampling, sample synthesis",
    pipeline={**_PUBLISHED, "explorer": PPO_PAPER, "sampler": _KNEE, "synthesizer": "mode"},
)

RELEASE = PresetRecord(
    name="release",
    summary="CHAMELEON as the code released with the paper has it",
    pipeline={
        **_PUBLISHED,
        "explorer": PPO_RELEASE,
        "sampler": {**_KNEE, "step": 8, "knobs": "widest"},
        # The released code has no synthesis, and draws random configurations instead.
        "synthesizer": "none",
    },
)

PUBLISHED = (PAPER, RELEASE)
"""The presets ``paper`` and ``release``."""
