"""The baselines of this package, as records. Importing them imports no numerical library."""

from __future__ import annotations

from chameleon_core.plugins import NoOptions, PluginRecord

BASELINES = (
    PluginRecord(
        name="untuned",
        summary="TVM's kernel without tuning, in the task's own layouts",
        factory="chameleon_tvm.baselines.untuned:UntunedBaseline",
        options=NoOptions,
    ),
)
