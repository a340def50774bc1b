"""Registers this package's plugins."""

from __future__ import annotations

from chameleon_core.plugins import PluginRecord, hookimpl

from chameleon_cost_models.options import XGBoostOptions


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
    ]
