"""The hooks that Chameleon calls with the events of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chameleon_core._plugins.hookspecs import hookspec

if TYPE_CHECKING:  # workers import the hooks, and hear of no event
    from chameleon_core import _events as records


class EventHooks:
    """Hooks that Chameleon calls with the events of a run, in every plugin that implements them.

    Hooks run in the process and thread of the search, so they should be quick. If a hook raises,
    Chameleon logs the error, and calls no hook of this plugin for the rest of the run. The options
    ``tryfirst`` and ``trylast`` of pluggy change the order of plugins. Chameleon refuses a
    ``wrapper``, because an event has no result. ``chameleon_core._events`` describes the fields of
    events, and docs/plugins.md#events has examples.
    """

    @hookspec
    def chameleon_check_started(self, event: records.CheckStarted) -> None:
        """The check before tuning begins: Chameleon tries whether it can deliver the network.

        Example:
            @hookimpl
            def chameleon_check_started(event):
                log.info("checking", folder=event.folder)

        Documentation: docs/plugins.md#events
        """

    @hookspec
    def chameleon_check_finished(self, event: records.CheckFinished) -> None:
        """The check before tuning has ended, and Chameleon can deliver the network.

        Example:
            @hookimpl
            def chameleon_check_finished(event):
                log.info(event.found["summary"], seconds=event.seconds)

        Documentation: docs/plugins.md#events
        """

    @hookspec
    def chameleon_run_started(self, event: records.RunStarted) -> None:
        """A process begins or continues a run.

        Example:
            @hookimpl
            def chameleon_run_started(event):
                log.info("tuning", tasks=[task.name for task in event.tasks])

        Documentation: docs/plugins.md#events
        """

    @hookspec
    def chameleon_batch_proposed(self, event: records.BatchProposed) -> None:
        """A batch is about to be measured.

        Example:
            @hookimpl
            def chameleon_batch_proposed(event):
                log.info("measuring", task=event.task, new=event.count - event.stored)

        Documentation: docs/plugins.md#events
        """

    @hookspec
    def chameleon_measured(self, event: records.Measured) -> None:
        """One configuration was measured, and its result is on disk.

        Example:
            @hookimpl
            def chameleon_measured(event):
                if event.failure is not None:
                    log.info(event.failure, task=event.task, config=event.config)

        Documentation: docs/plugins.md#events
        """

    @hookspec
    def chameleon_batch_measured(self, event: records.BatchMeasured) -> None:
        """All configurations of a batch are measured.

        Example:
            @hookimpl
            def chameleon_batch_measured(event):
                log.info(event.task.name, best=event.task.best_seconds, batch=event.seconds)

        Documentation: docs/plugins.md#events
        """

    @hookspec
    def chameleon_best_improved(self, event: records.BestImproved) -> None:
        """A configuration is faster than all earlier ones of its task.

        Example:
            @hookimpl
            def chameleon_best_improved(event):
                log.info("faster", task=event.task, seconds=event.seconds, **event.knobs)

        Documentation: docs/plugins.md#events
        """

    @hookspec
    def chameleon_task_finished(self, event: records.TaskFinished) -> None:
        """The search of a task has ended: the task gets no more batches.

        Example:
            @hookimpl
            def chameleon_task_finished(event):
                log.info(event.reason, task=event.task.name, measured=event.task.measured)

        Documentation: docs/plugins.md#events
        """

    @hookspec
    def chameleon_comparison_started(self, event: records.ComparisonStarted) -> None:
        """A final comparison begins: of a task with its baselines, or of a network with its rivals.

        Example:
            @hookimpl
            def chameleon_comparison_started(event):
                log.info("comparing", task=event.task, finalists=event.finalists)

        Documentation: docs/plugins.md#events
        """

    @hookspec
    def chameleon_comparison_progressed(self, event: records.ComparisonProgressed) -> None:
        """The comparison of a task's or network's contenders at the end of a run made progress.

        It builds the contenders, checks their outputs, and times them in rounds. The event names
        this step, with the number of contenders or rounds that are done.

        Example:
            @hookimpl
            def chameleon_comparison_progressed(event):
                log.info(event.step, task=event.task, done=event.done, of=event.of)

        Documentation: docs/plugins.md#events
        """

    @hookspec
    def chameleon_run_finished(self, event: records.RunFinished) -> None:
        """The run ended, after its final comparisons.

        Example:
            @hookimpl
            def chameleon_run_finished(event):
                log.info("finished", folder=event.folder, seconds=event.seconds)

        Documentation: docs/plugins.md#events
        """
