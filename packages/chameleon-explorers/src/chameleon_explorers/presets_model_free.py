"""Presets of searches that need no cost model: what every learned search has to beat."""

from __future__ import annotations

from typing import Any

from chameleon_core.plugins import PresetRecord

_COMMON: dict[str, Any] = {
    "target": "native",
    "space": "auto",
    "cost_model": "none",
    # No random picks: these explorers decide themselves how much of a batch goes elsewhere.
    "sampler": {"name": "greedy", "epsilon": 0.0},
    "synthesizer": "none",
    "runner": "local",
    "scheduler": "round-robin",
    "baselines": ["untuned", "onednn"],
    "seed": 0,
}
"""What all model-free presets have in common."""

LOCAL = PresetRecord(
    name="local",
    summary="Iterated local search on measurements alone",
    pipeline={
        **_COMMON,
        "explorer": {"name": "local", "share": 0.5, "climbs": 1, "kick": 2, "restart": 1.0},
        "budget": {"measurements": 256},
    },
)

DROPLET = PresetRecord(
    name="droplet",
    summary="Coordinate descent with growing steps, on measurements alone",
    pipeline={
        **_COMMON,
        "explorer": {"name": "droplet", "kick": 2},
        "budget": {"measurements": 256},
    },
)

GENETIC = PresetRecord(
    name="genetic",
    summary="AutoTVM's genetic algorithm, on measurements alone",
    pipeline={
        **_COMMON,
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
