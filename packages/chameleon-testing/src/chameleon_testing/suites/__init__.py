"""Conformance suites: a class for each kind of plugin, from which a plugin's own tests derive.

A suite gets the plugin's record, and pytest finds its checks::

    from chameleon_testing.suites import ExplorerSuite
    from my_explorer.hooks import RECORD

    class TestMyExplorer(ExplorerSuite):
        record = RECORD

``chameleon plugins check`` runs the same without pytest. The suites of operators, templates and
instructions are in ``chameleon_tvm.testing.suites``, those of transforms and network scores in
``chameleon_transforms.testing``.
"""

from chameleon_testing import _conformance_cases, _generators
from chameleon_testing.suites import base, pipelines, stages

ConformanceSuite = base.ConformanceSuite
StageSuite = base.StageSuite
TaskSuite = base.TaskSuite
ExplorerSuite = stages.ExplorerSuite
CostModelSuite = stages.CostModelSuite
SamplerSuite = stages.SamplerSuite
SynthesizerSuite = stages.SynthesizerSuite
SchedulerSuite = stages.SchedulerSuite
SpaceSuite = stages.SpaceSuite
RunnerSuite = stages.RunnerSuite
BaselineSuite = stages.BaselineSuite
RivalSuite = stages.RivalSuite
RecordDatabaseSuite = stages.RecordDatabaseSuite
FrontendSuite = pipelines.FrontendSuite
TargetSuite = pipelines.TargetSuite
PresetSuite = pipelines.PresetSuite
CommandSuite = pipelines.CommandSuite
trial = _generators.trial
SyntheticSpace = _conformance_cases.SyntheticSpace
"""A space provider for jobs in tests of runners."""
