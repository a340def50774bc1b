"""The hooks that are told what happens in a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chameleon_core.plugins.hookspecs import hookspec

if TYPE_CHECKING:  # workers import the hooks, and hear of no event
    from chameleon_core import events as records


class EventHooks:
    """Hooks that are told what happens in a run. All implementations are called.

    One that raises is logged and switched off for the rest of the run. They are called in the
    process and thread of the search, so they should be quick. ``tryfirst`` and ``trylast`` say who
    is told before or after the others; a ``wrapper`` is refused, since an event has no result.
    Fields of the events: ``chameleon_core.events``; more in docs/plugins.md#events.
    """

    @hookspec
    def chameleon_check_started(self, event: records.CheckStarted) -> None:
        """Chameleon tries the delivery once, before there are tasks.

        Example:
            @hookimpl
            def chameleon_check_started(event):
                log.info("checking", folder=event.folder)

        Documentation: docs/plugins.md#events
        """

    @hookspec
    def chameleon_check_finished(self, event: records.CheckFinished) -> None:
        """The delivery is possible.

        Example:
            @hookimpl
            def chameleon_check_finished(event):
                log.info(event.found["summary"], seconds=event.seconds)

        Documentation: docs/plugins.md#events
        """

    @hookspec
    def chameleon_run_started(self, event: records.RunStarted) -> None:
        """A process begins, or continues, a run.

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
        """One configuration was measured and is on disk.

        Example:
            @hookimpl
            def chameleon_measured(event):
                if event.failure is not None:
                    log.info(event.failure, task=event.task, config=event.config)

        Documentation: docs/plugins.md#events
        """

    @hookspec
    def chameleon_batch_measured(self, event: records.BatchMeasured) -> None:
        """A batch is complete.

        Example:
            @hookimpl
            def chameleon_batch_measured(event):
                log.info(event.task.name, best=event.task.best_seconds, batch=event.seconds)

        Documentation: docs/plugins.md#events
        """

    @hookspec
    def chameleon_best_improved(self, event: records.BestImproved) -> None:
        """A configuration is faster than every one before.

        Example:
            @hookimpl
            def chameleon_best_improved(event):
                log.info("faster", task=event.task, seconds=event.seconds, **event.knobs)

        Documentation: docs/plugins.md#events
        """

    @hookspec
    def chameleon_task_finished(self, event: records.TaskFinished) -> None:
        """A task gets no further batch.

        Example:
            @hookimpl
            def chameleon_task_finished(event):
                log.info(event.reason, task=event.task.name, measured=event.task.measured)

        Documentation: docs/plugins.md#events
        """

    @hookspec
    def chameleon_comparison_started(self, event: records.ComparisonStarted) -> None:
        """A task's winners are about to be measured again, interleaved with the baselines.

        Example:
            @hookimpl
            def chameleon_comparison_started(event):
                log.info("comparing", task=event.task, finalists=event.finalists)

        Documentation: docs/plugins.md#events
        """

    @hookspec
    def chameleon_comparison_progressed(self, event: records.ComparisonProgressed) -> None:
        """A step of a comparison is further than before.

        Example:
            @hookimpl
            def chameleon_comparison_progressed(event):
                log.info(event.step, task=event.task, done=event.done, of=event.of)

        Documentation: docs/plugins.md#events
        """

    @hookspec
    def chameleon_run_finished(self, event: records.RunFinished) -> None:
        """The run is at its end, winners compared.

        Example:
            @hookimpl
            def chameleon_run_finished(event):
                log.info("finished", folder=event.folder, seconds=event.seconds)

        Documentation: docs/plugins.md#events
        """
