"""The preparation of a task: a worker makes the stage's builder and computes the reference."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property

import attrs
from chameleon_core.plugin_api import PluginError, StageRef, Task

from chameleon_runners._engine.context import MeasureContext
from chameleon_runners._engine.references import builder_key
from chameleon_runners._engine.stage_errors import raise_stage_error
from chameleon_runners._engine.workers import EndReason, WorkerEvent
from chameleon_runners._worker.protocol import Message

_OPEN_ATTEMPTS = 4
_REFERENCE_ATTEMPTS = 3


@attrs.define(kw_only=True, eq=False)
class Preparation(ABC):
    """Makes a stage's builder for one task, and handles failures to make it.

    Attributes:
        stage: the class and the options of a space provider or a baseline.
        variant: the variant of a baseline; empty for a space provider.
    """

    stage: StageRef
    task: Task
    context: MeasureContext
    variant: str = ""

    @cached_property
    def key(self) -> str:
        """The identity of the stage's builder."""
        return builder_key(self.stage, self.task, self.variant)

    @property
    def open_command(self) -> Message:
        """The command that makes a worker create the stage's builder."""
        return {
            "command": "open",
            "factory": self.stage.factory,
            "options": self.stage.options,
            "variant": self.variant,
            "task": self.task.to_json(),
            "threads": self.context.threads,
        }

    @property
    def reference_command(self) -> Message:
        """The command that makes a worker compute the reference outputs."""
        return {"command": "reference", "path": str(self.context.reference.path)}

    @property
    def needs_reference(self) -> bool:
        """Whether this builder should compute the reference outputs."""
        return not (self.context.reference.ready or self.context.reference.computing)

    def on_reference(self, event: WorkerEvent) -> None:
        """Handle the result of ``reference_command``."""
        if event.ok and event.reply is not None:
            self.context.reference.tolerance = event.reply["tolerance"]
            self.context.reference.ready = True
        else:
            self._on_reference_failure(event)

    @abstractmethod
    def _on_reference_failure(self, event: WorkerEvent) -> None:
        """Handle a failure to compute the reference outputs."""

    @abstractmethod
    def on_opened(self, event: WorkerEvent) -> None:
        """Handle the result of ``open_command``."""

    @abstractmethod
    def on_build_refused(self, reply: Message) -> None:
        """Handle a builder that cannot build any configuration."""


@attrs.define(kw_only=True, eq=False)
class JobPreparation(Preparation):
    """Makes the builder of a measurement job; if that is impossible, the job fails."""

    _failed_opens: int = attrs.field(default=0, init=False)

    def on_opened(self, event: WorkerEvent) -> None:
        """Handle the event that a worker has made the builder, or failed to."""
        if event.end is None:
            if event.reply is not None and not event.ok:
                raise_stage_error(self.stage.factory, event.reply)
            self._failed_opens = 0
            return
        self._failed_opens += 1
        patience = self.context.retries if event.end.killed_externally else 0
        if self._failed_opens >= max(_OPEN_ATTEMPTS, patience):
            raise PluginError(
                f"the stage {self.stage.factory!r} does not start: {event.reason}",
                hint="create the stage in a new Python process to see why, and raise memory_mib of "
                "the runner if that works",
            )

    def _on_reference_failure(self, event: WorkerEvent) -> None:
        """Count workers that end while they compute the reference; other failures end the job."""
        end, reply = event.end, event.reply
        if reply is not None and reply["status"] == "error":
            raise_stage_error(self.stage.factory, reply)
        if reply is not None:
            raise PluginError(
                f"candidates of {self.stage.factory!r} cannot be checked: {reply['message']}",
                hint="its builder has to implement reference()",
            )
        if end is None:
            return
        self.context.reference.attempts += 0 if end.killed_externally else 1
        if (
            self.context.reference.attempts >= _REFERENCE_ATTEMPTS
            or end.reason is EndReason.DEADLINE
        ):
            raise PluginError(
                f"the reference outputs of task {self.task.name!r} cannot be computed: "
                f"{event.reason}",
                hint="raise reference_timeout or memory_mib of the runner",
            )

    def on_build_refused(self, reply: Message) -> None:
        """End the job with an error, since its other candidates would fail in the same way."""
        if reply["status"] == "error":
            raise_stage_error(self.stage.factory, reply)
        raise PluginError(
            f"candidates of {self.stage.factory!r} cannot be sent to devices: {reply['message']}",
            hint="its builder has to implement export(); or use the runner 'local'",
        )
