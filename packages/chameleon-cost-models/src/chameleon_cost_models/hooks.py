"""Registers this package's plugins."""

from __future__ import annotations

from collections.abc import Iterable

from chameleon_core.plugin_api import PluginRecord, hookimpl, recorder

from chameleon_cost_models import _options as options

_record = recorder("chameleon_cost_models")


@hookimpl
def chameleon_cost_models() -> Iterable[PluginRecord]:
    """Cost models of this package."""
    xgboost = "Gradient-boosted trees on knob and analytical features (AutoTVM's)"
    lightgbm = "Leaf-wise gradient-boosted trees"
    ensemble = "Bagged boosted trees that know their uncertainty and explore by it"
    mixed = "An ensemble on throughput and its logarithm, validity apart"
    process = "A Gaussian process, which picks rounds whose measurements tell most together"
    turns = "Several models, one after the other: each guides a round"
    yield _record("xgboost", xgboost, "_xgboost_model:XGBoostModel", options.XGBoostOptions)
    yield _record("lightgbm", lightgbm, "_lightgbm_model:LightGBMModel", options.LightGBMOptions)
    yield _record("ensemble", ensemble, "_ensemble:Ensemble", options.EnsembleOptions)
    yield _record("mixed", mixed, "_mixed:MixedEnsemble", options.MixedOptions)
    yield _record(
        "gaussian-process",
        process,
        "_gaussian_process:GaussianProcess",
        options.GaussianProcessOptions,
    )
    yield _record(
        "alternating", turns, "_alternating:AlternatingModels", options.AlternatingOptions
    )
