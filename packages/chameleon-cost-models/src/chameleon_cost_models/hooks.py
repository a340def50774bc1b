"""Registers this package's plugins."""

from __future__ import annotations

from chameleon_core.plugins import PluginRecord, hookimpl

from chameleon_cost_models.options import (
    AlternatingOptions,
    EnsembleOptions,
    GaussianProcessOptions,
    LightGBMOptions,
    MixedOptions,
    XGBoostOptions,
)


@hookimpl
def chameleon_cost_models() -> list[PluginRecord]:
    """Cost models of this package."""
    return [
        PluginRecord(
            name="xgboost",
            summary="Gradient-boosted trees on knob and analytical features (AutoTVM's)",
            factory="chameleon_cost_models.xgboost_model:XGBoostModel",
            options=XGBoostOptions,
        ),
        PluginRecord(
            name="lightgbm",
            summary="Leaf-wise gradient-boosted trees",
            factory="chameleon_cost_models.lightgbm_model:LightGBMModel",
            options=LightGBMOptions,
        ),
        PluginRecord(
            name="ensemble",
            summary="Bagged boosted trees that know their uncertainty and explore by it",
            factory="chameleon_cost_models.ensemble:Ensemble",
            options=EnsembleOptions,
        ),
        PluginRecord(
            name="mixed",
            summary="An ensemble on throughput and its logarithm, validity apart",
            factory="chameleon_cost_models.mixed:MixedEnsemble",
            options=MixedOptions,
        ),
        PluginRecord(
            name="gaussian-process",
            summary="A Gaussian process, which picks rounds whose measurements tell most together",
            factory="chameleon_cost_models.gaussian_process:GaussianProcess",
            options=GaussianProcessOptions,
        ),
        PluginRecord(
            name="alternating",
            summary="Several models, one after the other: each guides a round",
            factory="chameleon_cost_models.alternating:AlternatingModels",
            options=AlternatingOptions,
        ),
    ]
