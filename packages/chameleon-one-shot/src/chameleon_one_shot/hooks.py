"""Registers this package's plugins, and the preset of a predictor trained beforehand."""

from __future__ import annotations

from collections.abc import Iterable

from chameleon_core.plugins import CommandRecord, PluginRecord, PresetRecord, hookimpl

from chameleon_one_shot.dataset.task_options import TasksOptions
from chameleon_one_shot.options import OneShotOptions

ONE_SHOT = PresetRecord(
    name="one-shot",
    summary="One exploration by a predictor trained beforehand; the best few are measured",
    # All else is the default's, so that tasks unlike those that the predictor knows are tuned as
    # by default.
    pipeline={
        "cost_model": {"name": "one-shot", "model": "auto", "finetune": False},
        # No random picks: eight measurements are too few to learn from them.
        "sampler": {"name": "greedy", "epsilon": 0.0},
        # All in one batch: nothing is learnt in between (Ryu et al. 2022, section 4.5). A search of
        # what it does not know ends after three batches that bring nothing.
        "budget": {
            "measurements": 8,
            "batch_size": 8,
            "plan_size": 256,
            "unpredicted": 64,
            "patience": 24,
        },
    },
)


@hookimpl
def chameleon_frontends() -> Iterable[PluginRecord]:
    """Tasks that were written down."""
    yield PluginRecord(
        name="tasks",
        summary="Tasks in a file, as a data set's collection draws them",
        factory="chameleon_one_shot.dataset.task_file:TasksFrontend",
        options=TasksOptions,
    )


@hookimpl
def chameleon_cost_models() -> Iterable[PluginRecord]:
    """The predictor."""
    yield PluginRecord(
        name="one-shot",
        summary="A network trained beforehand on other tasks, perhaps fitted to this one",
        factory="chameleon_one_shot.cost_model:OneShotModel",
        options=OneShotOptions,
    )


@hookimpl
def chameleon_presets() -> Iterable[PresetRecord]:
    """The search that measures next to nothing."""
    yield ONE_SHOT


@hookimpl
def chameleon_commands() -> Iterable[CommandRecord]:
    """Data sets of measured candidates, and predictors."""
    yield CommandRecord(
        name="dataset",
        summary="Collect measurements of many tasks, or import, merge and check them.",
        factory="chameleon_one_shot.commands.dataset:command",
    )
    yield CommandRecord(
        name="pretrain",
        summary="Train a predictor of kernels' speed on a data set.",
        factory="chameleon_one_shot.commands.pretrain:command",
    )
    yield CommandRecord(
        name="evaluate-predictor",
        summary="Judge a predictor by tasks that it has not seen.",
        factory="chameleon_one_shot.commands.evaluate_predictor:command",
    )
