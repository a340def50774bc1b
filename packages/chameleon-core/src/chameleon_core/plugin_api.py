"""The core's public names for plugins: contracts, records, data, spaces, and errors.

The page "Public names" of the reference lists each name. Each is imported when it is first used, so
hooks load no numerical library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chameleon_system.api import lazy_exports

if TYPE_CHECKING:
    from chameleon_core import _events as events
    from chameleon_core._arrays import Arrays
    from chameleon_core._dtypes import FLOAT32
    from chameleon_core._errors import (
        ChameleonError,
        ConfigError,
        DeviceLostError,
        ExitCode,
        InvalidConfigurationError,
        PluginError,
        RunFolderError,
        TargetError,
    )
    from chameleon_core._fallbacks import fall_back
    from chameleon_core._measurement import FailureKind, Measurement
    from chameleon_core._pipeline.annotations import form_of, parse_duration
    from chameleon_core._pipeline.nodes import (
        Node,
        PipelineError,
    )
    from chameleon_core._pipeline.record_locations import records_location
    from chameleon_core._pipeline.schema import ModelChoice, StageSpec
    from chameleon_core._pipeline.stage_reader import create_stage, read_options
    from chameleon_core._plugins.check import complaint
    from chameleon_core._plugins.event_hooks import EventHooks
    from chameleon_core._plugins.factory import load_factory
    from chameleon_core._plugins.hookspecs import hookimpl
    from chameleon_core._plugins.kinds import KINDS, Kind
    from chameleon_core._plugins.options import option
    from chameleon_core._plugins.records import (
        CommandRecord,
        CostModelRecord,
        ExplorerRecord,
        FrontendRecord,
        InstructionRecord,
        NoOptions,
        OperatorRecord,
        PluginRecord,
        PresetRecord,
        RecordDatabaseRecord,
        RunnerRecord,
        Section,
        SectionRecord,
        SpaceRecord,
        TargetRecord,
        TemplateRecord,
        recorder,
    )
    from chameleon_core._schedulers import Scheduler
    from chameleon_core._space.design import (
        Configs,
        Constraint,
        DesignSpace,
    )
    from chameleon_core._space.knobs import (
        Choice,
        Factorization,
        Knob,
        Values,
    )
    from chameleon_core._stages.code import Baseline, Builder, Kernel, SpaceProvider
    from chameleon_core._stages.disturbance import Disturbance
    from chameleon_core._stages.frontend import Delivery, Frontend, TargetResolver
    from chameleon_core._stages.jobs import ComparisonPlan, Contender, MeasureJob, StageRef
    from chameleon_core._stages.record_database import RecordDatabase
    from chameleon_core._stages.runner import (
        Device,
        MeasureStream,
        OrderedStream,
        Rival,
        Runner,
    )
    from chameleon_core._stages.search import (
        Archive,
        Candidates,
        CostModel,
        Explorer,
        Observations,
        Sampler,
        Scores,
        StageContext,
        Synthesizer,
        Visited,
    )
    from chameleon_core._task import Task
else:
    __all__, __getattr__, __dir__ = lazy_exports(__name__, __file__)
