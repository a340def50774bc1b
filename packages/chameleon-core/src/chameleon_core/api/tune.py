"""A whole run from a program: what ``chameleon run`` does, with the same checks and errors."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from chameleon_core.api.callbacks import Callback, listeners
from chameleon_core.api.progress import display
from chameleon_core.api.run import Run, load_run
from chameleon_core.loop.interruption import Interruption, RunInterrupted
from chameleon_core.loop.run import run_pipeline
from chameleon_core.pipeline.load import from_dict, load_pipeline
from chameleon_core.pipeline.schema import ResolvedPipeline
from chameleon_core.plugins.registry import Registry


def tune(
    pipeline: str | Path | Mapping[str, Any] | None = None,
    *,
    output: str | Path | None = None,
    progress: bool = True,
    callbacks: Sequence[Callback] = (),
    fresh: bool = False,
    registry: Registry | None = None,
    **sections: Any,
) -> Run:
    """Tune what a pipeline says; the same call again continues an interrupted run.

    Args:
        pipeline: a pipeline file, or a mapping with its keys; sections alone where None.
        output: the run folder. Where None it is the pipeline's, or that of the file's name below
            ``runs``; of a pipeline without a file it is a new folder for temporary files, which
            stays and which no later call continues.
        progress: whether to show on stderr how far it is: with what the command line shows where
            that is installed, in plain lines otherwise.
        callbacks: functions that take every event (``chameleon_core.events``). Where one of them
            returns ``STOP``, the run ends after what is in flight, before winners are compared.
        fresh: move an earlier run in the folder aside and start anew.
        registry: where plugins are looked up; the installed ones where None.
        sections: keys of a pipeline, such as ``model``, ``target``, ``explorer`` or ``budget``,
            laid over ``pipeline`` as that is over its preset.

    Returns:
        The run. It is not ``finished`` where a callback stopped it; the same call continues it.

    Raises:
        ConfigError: the pipeline is wrong, with a line for everything that is; or the model or the
            target cannot be what it says.
        PluginError: a plugin is missing or breaks its contract.
        TargetError: the device cannot do what is asked.
        RunFolderError: the folder is in use, cannot be written, or belongs to another pipeline.
        KeyboardInterrupt: as ever; what was measured is saved.
    """
    interruption = Interruption()
    # Before the pipeline is read, which may make a folder.
    told = listeners(callbacks, interruption.request)
    resolved = _resolved(pipeline, output, sections, registry)
    with contextlib.ExitStack() as stack:
        if progress:
            told.append(stack.enter_context(display(sys.stderr)))
        with contextlib.suppress(RunInterrupted):  # a callback's wish, not an error
            run_pipeline(resolved, fresh=fresh, listeners=told, interruption=interruption)
    return load_run(resolved.output)


def _resolved(
    pipeline: str | Path | Mapping[str, Any] | None,
    output: str | Path | None,
    sections: Mapping[str, Any],
    registry: Registry | None,
) -> ResolvedPipeline:
    if output is not None:
        sections = {**sections, "output": str(output)}
    if isinstance(pipeline, str | Path):
        return load_pipeline(pipeline, registry=registry, sections=sections)
    document = {} if pipeline is None else pipeline
    resolved = from_dict(document, registry=registry, sections=sections)
    if "output" in {*document, *sections}:
        return resolved
    # Only now: a pipeline that is wrong leaves no folder behind.
    folder = Path(tempfile.mkdtemp(prefix="chameleon-"))
    named = {**resolved.document, "output": str(folder)}
    return attrs.evolve(resolved, output=folder, document=named)


__all__ = ["tune"]
