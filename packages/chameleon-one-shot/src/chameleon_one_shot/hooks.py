"""Registers this package's plugins, and the preset ``one-shot``."""

from __future__ import annotations

from collections.abc import Iterable

from chameleon_core.plugin_api import CommandRecord, PluginRecord, PresetRecord, hookimpl, recorder

from chameleon_one_shot._dataset.task_options import TasksOptions
from chameleon_one_shot._options import OneShotOptions

ONE_SHOT = PresetRecord(
    name="one-shot",
    summary="One exploration by a predictor trained beforehand; the best few are measured",
    # The other keys are those of the default preset, for tasks that the predictor does not know.
    pipeline={
        "cost_model": {"name": "one-shot", "model": "auto", "finetune": False},
        # No random picks: eight measurements are too few to learn from them.
        "sampler": {"name": "greedy", "epsilon": 0.0},
        # One batch, because nothing is learnt in between (Ryu et al. 2022, section 4.5). The search
        # of an unknown task ends after three batches without improvement.
        "budget": {
            "measurements": 8,
            "batch_size": 8,
            "plan_size": 256,
            "unpredicted": 64,
            "patience": 24,
        },
    },
)

_record = recorder("chameleon_one_shot")


@hookimpl
def chameleon_frontends() -> Iterable[PluginRecord]:
    """The frontend ``tasks``."""
    summary = "Tasks in a file, as a data set's collection draws them"
    yield _record("tasks", summary, "_dataset.tasks:TasksFrontend", TasksOptions)


@hookimpl
def chameleon_cost_models() -> Iterable[PluginRecord]:
    """The cost model ``one-shot``."""
    summary = "A network trained beforehand on other tasks, perhaps fitted to this one"
    yield _record("one-shot", summary, "_cost_model:OneShotModel", OneShotOptions)


@hookimpl
def chameleon_presets() -> Iterable[PresetRecord]:
    """The preset ``one-shot``, which measures only a few configurations."""
    yield ONE_SHOT


@hookimpl
def chameleon_commands() -> Iterable[CommandRecord]:
    """The commands for data sets and predictors."""
    for name, summary in (
        ("dataset", "Collect measurements of many tasks, or import, merge and check them."),
        ("pretrain", "Train a predictor of kernels' speed on a data set."),
        ("evaluate-predictor", "Judge a predictor by tasks that it has not seen."),
    ):
        factory = f"chameleon_one_shot._commands.{name.replace('-', '_')}:command"
        yield CommandRecord(name=name, summary=summary, factory=factory)
