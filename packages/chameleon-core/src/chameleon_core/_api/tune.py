"""Whole searches in one call: ``tune`` runs a pipeline, ``minimize`` minimizes any function."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, TextIO

import attrs
import structlog

from chameleon_core._api.checks import a_space, takes_knobs, whole_number
from chameleon_core._api.measurements import Measurements, Trial
from chameleon_core._api.run import Run, load_run
from chameleon_core._api.stages import with_stages
from chameleon_core._api.tuner import Callback, Tuner, listeners
from chameleon_core._events import BestImproved, RunFinished, RunStarted, TaskFinished
from chameleon_core._loop.interruption import Interruption, RunInterrupted
from chameleon_core._loop.run import run_pipeline
from chameleon_core._pipeline.load import from_dict, load_pipeline
from chameleon_core._pipeline.schema import ResolvedPipeline
from chameleon_core._plugins.hookspecs import hookimpl
from chameleon_core._plugins.registry import Registry
from chameleon_core._space.design import DesignSpace
from chameleon_core._words import in_seconds


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
    """Run a pipeline. If you repeat the call, it continues an interrupted run.

    Args:
        pipeline: the path of a pipeline file, or a mapping with the keys of such a file. If None,
            ``sections`` are the whole pipeline.
        output: the run folder. If None, the pipeline's ``output`` is used, or else ``runs/`` and
            the pipeline file's name. A pipeline without a file and without ``output`` gets a new
            temporary folder. Chameleon keeps this folder, and no later call continues it.
        progress: whether to show progress on stderr. If ``chameleon-tuner-cli`` is installed, its
            display is used, else plain lines.
        callbacks: functions that take every event (``chameleon_core._events``). If a function
            returns ``STOP``, Chameleon finishes the measurements that are running, and ends the run
            without a final comparison.
        fresh: whether to move an earlier run in the folder aside, and start a new one.
        registry: the registry of plugins; if None, the registry of installed plugins.
        sections: keys of a pipeline, such as ``model``, ``target``, ``explorer`` or ``budget``.
            They override the keys of ``pipeline``, as a pipeline's keys override its preset. A
            search stage, scheduler or runner may also be a class, or an object of it (see
            ``Tuner``). An object can serve only one operator.

    Returns:
        The run. If a callback stopped the run, ``finished`` is False, and a repeated call continues
        the run.

    Raises:
        ConfigError: the pipeline has faults (the message has one line for each), or the model or
            the target does not fit the pipeline.
        PluginError: a plugin is missing or breaks its contract.
        TargetError: the device cannot run the code.
        RunFolderError: the folder is in use, cannot be written, or belongs to another pipeline.
        KeyboardInterrupt: you pressed Ctrl+C; all measurements are saved.

    Example:
        >>> import chameleon_core as cc
        >>> run = cc.tune(
        ...     model={"operators": [{"dense": {"name": "dense", "input": [64, 64], "units": 64}}]},
        ...     target="native",
        ...     budget={"measurements": 4},
        ...     baselines=[],
        ...     output="runs/dense",
        ...     progress=False,
        ... )
        >>> run.finished, len(run.measurements)
        (True, 4)
    """
    interruption = Interruption()
    # Check the callbacks before the pipeline is read, which may make a folder.
    plugins = listeners(callbacks, interruption.request)
    resolved = _resolved(pipeline, output, sections, registry)
    with contextlib.ExitStack() as stack:
        if progress:
            plugins.append(stack.enter_context(display(sys.stderr)))
        with contextlib.suppress(RunInterrupted):  # a callback asked to stop; this is no error
            run_pipeline(resolved, fresh=fresh, listeners=plugins, interruption=interruption)
    return load_run(resolved.output)


def _resolved(
    pipeline: str | Path | Mapping[str, Any] | None,
    output: str | Path | None,
    sections: Mapping[str, Any],
    registry: Registry | None,
) -> ResolvedPipeline:
    if output is not None:
        sections = {**sections, "output": str(output)}
    sections, registry = with_stages(sections, registry)
    if isinstance(pipeline, str | Path):
        return load_pipeline(pipeline, registry=registry, sections=sections)
    document, registry = with_stages({} if pipeline is None else pipeline, registry)
    resolved = from_dict(document, registry=registry, sections=sections)
    if "output" in {*document, *sections}:
        return resolved
    # The folder is made last, so that a wrong pipeline leaves none behind.
    folder = Path(tempfile.mkdtemp(prefix="chameleon-"))
    named = {**resolved.document, "output": str(folder)}
    return attrs.evolve(resolved, output=folder, document=named)


DISPLAYS = "chameleon.progress"
"""Group of entry points. Each is a function that takes a stream and returns a display: a listener
of events with a method ``close``. ``chameleon-tuner-cli`` brings one."""

log = structlog.get_logger()


@contextlib.contextmanager
def display(stream: TextIO) -> Iterator[object]:
    """Show the events of a run on a stream, until the context ends.

    The context's value is the listener that receives the events.

    Args:
        stream: the stream to write to, such as stderr.
    """
    shown = _installed(stream)
    try:
        yield shown
    finally:
        close: Callable[[], object] = getattr(shown, "close", lambda: None)
        close()


def _installed(stream: TextIO) -> object:
    for point in metadata.entry_points(group=DISPLAYS):
        try:
            return point.load()(stream)
        except Exception:  # anyone's code; watching a run must not end it
            log.exception("display_left_out", display=point.value)
    return TextProgress(stream)


class TextProgress:
    """Prints a line when a run begins, a task improves, a task ends, or the run ends.

    Args:
        stream: the stream to write to.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def _say(self, line: str) -> None:
        self._stream.write(line + "\n")
        self._stream.flush()

    @hookimpl
    def chameleon_run_started(self, event: RunStarted) -> None:
        """See ``EventHooks``."""
        self._say(f"tuning {', '.join(task.name for task in event.tasks)}: {event.folder}")

    @hookimpl
    def chameleon_best_improved(self, event: BestImproved) -> None:
        """See ``EventHooks``."""
        best = in_seconds(event.seconds, "#.3g")
        self._say(f"{event.task}: {best} after {event.measured} measurements")

    @hookimpl
    def chameleon_task_finished(self, event: TaskFinished) -> None:
        """See ``EventHooks``."""
        best = in_seconds(event.task.best_seconds, "#.3g")
        self._say(f"{event.task.name}: {best}, {event.task.measured} measured, {event.reason}")

    @hookimpl
    def chameleon_run_finished(self, event: RunFinished) -> None:
        """See ``EventHooks``."""
        self._say(f"finished after {event.seconds:.1f} s: {event.folder}")


@attrs.frozen(kw_only=True)
class Minimum:
    """The result of ``minimize``.

    Attributes:
        best: the configuration with the smallest value, or None if every evaluation failed.
        measurements: the measurements of all evaluations.
    """

    best: Trial | None
    measurements: Measurements


def minimize(
    function: Callable[..., Any], space: DesignSpace, *, budget: int, **tuner: Any
) -> Minimum:
    """Find the configuration for which a function returns the smallest value.

    Chameleon calls the function in this process, one configuration after another. If the function
    hangs or crashes, so does the process. The search ends early if every configuration was tried,
    or if a callback returns ``STOP``.

    Args:
        function: a function of knob values, which it takes by their names. It returns a number
            above 0, such as seconds, or another value that ``Tuner.tell`` accepts. If it raises an
            exception, the configuration counts as failed.
        space: a design space, such as ``design_space`` returns.
        budget: the largest number of evaluations. Evaluations that ``store`` already holds count.
        tuner: keyword arguments of ``Tuner``, such as ``explorer``, ``seed``, ``store`` or
            ``callbacks``.

    Returns:
        The best configuration and all evaluations.

    Raises:
        ConfigError: an argument is wrong.
        PluginError: a stage breaks its contract.
        RunFolderError: the store is in use, cannot be written, or belongs to another search.

    Example:
        >>> import chameleon_core as cc
        >>> space = cc.design_space(tile=[1, 2, 4, 8], unroll=[0, 16])
        >>> minimum = cc.minimize(lambda tile, unroll: 8 / tile + unroll, space, budget=8)
        >>> minimum.best.configuration, minimum.best.seconds
        ({'tile': 8, 'unroll': 0}, 1.0)
    """
    whole_number(budget, "budget", hint="it is how often the function is called at most")
    takes_knobs(function, a_space(space))
    with Tuner(space, **tuner) as search:
        while search.measured < budget and not search.stopped:
            batch = search.ask(min(search.batch_size, budget - search.measured))
            if not len(batch):
                break
            search.evaluate(batch, function)
        rows = search.rows()
        return Minimum(best=search.best, measurements=Measurements(lambda: rows))
