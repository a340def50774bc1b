"""The core's public names for programs: tuning, runs, pipelines, results, and stores.

The page "Public names" of the reference lists each name. Each is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chameleon_system.api import lazy_exports

if TYPE_CHECKING:
    from chameleon_core import _words as words
    from chameleon_core._api.design_space import design_space
    from chameleon_core._api.measurements import Measurements, Trial
    from chameleon_core._api.run import Run, load_run
    from chameleon_core._api.tune import Minimum, minimize, tune
    from chameleon_core._api.tuner import STOP, Tuner
    from chameleon_core._loop.context import RunContext
    from chameleon_core._loop.end.result import (
        OperatorResult,
        RunResult,
    )
    from chameleon_core._loop.interruption import Interruption, RunInterrupted
    from chameleon_core._loop.round.stages import generator
    from chameleon_core._loop.round.tuner import TaskTuner
    from chameleon_core._loop.run import run_pipeline
    from chameleon_core._loop.start.tasks import TaskSource
    from chameleon_core._network_result import (
        NetworkResult,
    )
    from chameleon_core._pipeline.jsonable import to_json
    from chameleon_core._pipeline.load import (
        DocumentReader,
        from_dict,
        load_pipeline,
    )
    from chameleon_core._pipeline.schema import ResolvedPipeline
    from chameleon_core._pipeline.yaml import dump_yaml
    from chameleon_core._plugins import local as local_plugins
    from chameleon_core._plugins.manager import Registration
    from chameleon_core._plugins.registry import (
        Registry,
    )
    from chameleon_core._run_files import RunFile
    from chameleon_core._run_view import (
        RunView,
    )
    from chameleon_core._store.records import RecordStore
    from chameleon_core._store.sqlite_file import SQLiteFile
    from chameleon_core._trust import check_tasks
    from chameleon_core._versions import installed
else:
    __all__, __getattr__, __dir__ = lazy_exports(__name__, __file__)
