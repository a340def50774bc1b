"""What comes before the first build of a task: its builder is made, its outputs are computed."""

from __future__ import annotations

from abc import ABC, abstractmethod

from chameleon_core.errors import PluginError
from chameleon_core.stages import StageRef
from chameleon_core.task import Task

from chameleon_runners.engine.references import Reference, stage_key
from chameleon_runners.engine.stage_errors import raise_stage_error
from chameleon_runners.engine.worker_process import EndReason
from chameleon_runners.engine.workers import WorkerEvent
from chameleon_runners.worker.protocol import Message

_OPEN_ATTEMPTS = 4
_REFERENCE_ATTEMPTS = 3


class Preparation(ABC):
    """A stage's builder of one task, and what becomes of it where it fails.

    Args:
        stage: a space provider or baseline, as data.
        task: the task.
        reference: the task's expected outputs.
        threads: threads a kernel runs with.
        retries: how often a worker is replaced, at least, that somebody else ends over it.
        variant: of a baseline.

    Attributes:
        key: identity of the builder.
    """

    def __init__(
        self,
        stage: StageRef,
        task: Task,
        *,
        reference: Reference,
        threads: int,
        retries: int,
        variant: str = "",
    ) -> None:
        self.key = stage_key(stage, task, variant)
        self._stage = stage
        self._task = task
        self._reference = reference
        self._threads = threads
        self._retries = retries
        self._variant = variant

    @property
    def open_command(self) -> Message:
        """Have a worker make the builder."""
        return {
            "command": "open",
            "factory": self._stage.factory,
            "options": self._stage.options,
            "variant": self._variant,
            "task": self._task.to_json(),
            "threads": self._threads,
        }

    @property
    def reference_command(self) -> Message:
        """Have a worker compute the expected outputs."""
        return {"command": "reference", "path": str(self._reference.path)}

    @property
    def wants_reference(self) -> bool:
        """Whether the expected outputs are to be computed with this builder."""
        return not (self._reference.ready or self._reference.computing)

    def computed(self, event: WorkerEvent) -> None:
        """Take in what ``reference_command`` gave."""
        if event.ok and event.reply is not None:
            self._reference.tolerance = event.reply["tolerance"]
            self._reference.ready = True
        else:
            self._not_computed(event)

    @abstractmethod
    def _not_computed(self, event: WorkerEvent) -> None:
        """The expected outputs are not to be had from this builder, or not yet."""

    @abstractmethod
    def opened(self, event: WorkerEvent) -> None:
        """Take in what ``open_command`` gave."""

    @abstractmethod
    def refused(self, reply: Message) -> None:
        """The builder cannot build anything, wherever it is tried."""


class JobPreparation(Preparation):
    """The builder of a job, without which there is nothing to measure."""

    _failed_opens = 0

    def opened(self, event: WorkerEvent) -> None:
        """Count workers that end; any other failure is that of the job.

        Raises:
            ChameleonError: the builder cannot be made, or ends workers, again and again.
        """
        if event.end is None:
            if event.reply is not None and not event.ok:
                raise_stage_error(self._stage.factory, event.reply)
            self._failed_opens = 0
            return
        self._failed_opens += 1
        patience = self._retries if event.end.from_outside else 0
        if self._failed_opens >= max(_OPEN_ATTEMPTS, patience):
            raise PluginError(
                f"the stage {self._stage.factory!r} does not start: {event.reason}",
                hint="make the stage by hand in a fresh Python to see why",
            )

    def _not_computed(self, event: WorkerEvent) -> None:
        """Count workers that end; any other failure is that of the job.

        Raises:
            ChameleonError: the builder does not know the expected outputs, takes too long, or ends
                workers, again and again.
        """
        end, reply = event.end, event.reply
        if reply is not None and reply["status"] == "error":
            raise_stage_error(self._stage.factory, reply)
        if reply is not None:
            raise PluginError(
                f"candidates of {self._stage.factory!r} cannot be checked: {reply['message']}",
                hint="its builder has to implement reference()",
            )
        if end is None:
            return
        self._reference.attempts += 0 if end.from_outside else 1
        if self._reference.attempts >= _REFERENCE_ATTEMPTS or end.reason is EndReason.DEADLINE:
            raise PluginError(
                f"the reference outputs of task {self._task.name!r} cannot be computed: "
                f"{event.reason}",
                hint="raise reference_timeout or memory_mib of the runner",
            )

    def refused(self, reply: Message) -> None:
        """Fail the job, whose other candidates would fail alike.

        Raises:
            ChameleonError: always.
        """
        if reply["status"] == "error":
            raise_stage_error(self._stage.factory, reply)
        raise PluginError(
            f"candidates of {self._stage.factory!r} cannot be sent to devices: {reply['message']}",
            hint="its builder has to implement export(); or use the runner 'local'",
        )
