"""Conformance suites: one class per kind of plugin, to be derived from in a plugin's own tests.

A suite is told what the plugin registers, and pytest finds its checks::

    from chameleon_testing.suites import ExplorerSuite
    from my_explorer.hooks import RECORD

    class TestMyExplorer(ExplorerSuite):
        record = RECORD

``chameleon plugins check`` runs the same without pytest. The suites of operators, templates and
instructions are in ``chameleon_tvm.testing.suites``, those of transforms and network scores in
``chameleon_transforms.testing``.
"""

from chameleon_testing.suites.base import ConformanceSuite, StageSuite, TaskSuite
from chameleon_testing.suites.databases import RecordDatabaseSuite
from chameleon_testing.suites.hardware import BaselineSuite, RivalSuite, RunnerSuite, SpaceSuite
from chameleon_testing.suites.models import FrontendSuite, TargetSuite
from chameleon_testing.suites.search import (
    CostModelSuite,
    ExplorerSuite,
    SamplerSuite,
    SchedulerSuite,
    SynthesizerSuite,
)
from chameleon_testing.suites.words import CommandSuite, PresetSuite

__all__ = [
    "BaselineSuite",
    "CommandSuite",
    "ConformanceSuite",
    "CostModelSuite",
    "ExplorerSuite",
    "FrontendSuite",
    "PresetSuite",
    "RecordDatabaseSuite",
    "RivalSuite",
    "RunnerSuite",
    "SamplerSuite",
    "SchedulerSuite",
    "SpaceSuite",
    "StageSuite",
    "SynthesizerSuite",
    "TargetSuite",
    "TaskSuite",
]
