"""What comes before the first build of a task: its builder is made, its outputs are computed."""

from __future__ import annotations

from chameleon_core.errors import PluginError
from chameleon_core.stages import StageRef
from chameleon_core.task import Task

from chameleon_runners.references import Reference
from chameleon_runners.stage_errors import raise_stage_error
from chameleon_runners.worker.protocol import Message
from chameleon_runners.worker_process import EndReason, WorkerEnd

_OPEN_ATTEMPTS = 4
_REFERENCE_ATTEMPTS = 3


def open_command(stage: StageRef, task: Task, *, threads: int, variant: str = "") -> Message:
    """Have a worker make a stage's builder of a task.

    Args:
        stage: a space provider or baseline, as data.
        task: the task.
        threads: threads a kernel runs with.
        variant: of a baseline.
    """
    return {
        "command": "open",
        "factory": stage.factory,
        "options": stage.options,
        "variant": variant,
        "task": task.to_json(),
        "threads": threads,
    }


class Preparation:
    """Knows how far the preparation of one task is, and when to give it up.

    Args:
        stage: the space provider, as data.
        task: the task.
        reference: the task's expected outputs.
        threads: threads a kernel runs with.
    """

    def __init__(self, stage: StageRef, task: Task, *, reference: Reference, threads: int) -> None:
        self._stage = stage
        self._task = task
        self._reference = reference
        self._threads = threads
        self._failed_opens = 0

    @property
    def open_command(self) -> Message:
        """Have a worker make the builder."""
        return open_command(self._stage, self._task, threads=self._threads)

    @property
    def reference_command(self) -> Message:
        """Have a worker compute the expected outputs."""
        return {"command": "reference", "path": str(self._reference.path)}

    def opened(self, reply: Message) -> None:
        """Take in the answer to ``open_command``.

        Raises:
            ChameleonError: the builder cannot be made.
        """
        if reply["status"] != "ok":
            raise_stage_error(self._stage.factory, reply)
        self._failed_opens = 0

    def computed(self, reply: Message) -> None:
        """Take in the answer to ``reference_command``.

        Raises:
            ChameleonError: the builder does not know the expected outputs.
        """
        if reply["status"] == "error":
            raise_stage_error(self._stage.factory, reply)
        if reply["status"] == "none":
            raise PluginError(
                f"candidates of {self._stage.factory!r} cannot be checked: {reply['message']}",
                hint="its builder has to implement reference()",
            )
        self._reference.tolerance = reply["tolerance"]
        self._reference.ready = True

    def open_ended(self, end: WorkerEnd) -> None:
        """Count a worker that ended while it made the builder.

        Raises:
            PluginError: the stage itself ends workers, again and again.
        """
        self._failed_opens += 1
        if self._failed_opens >= _OPEN_ATTEMPTS:
            raise PluginError(
                f"the stage {self._stage.factory!r} does not start: {end.explain()}",
                hint="make the stage by hand in a fresh Python to see why",
            )

    def reference_ended(self, end: WorkerEnd) -> None:
        """Count a worker that ended while it computed the expected outputs.

        Raises:
            PluginError: it takes too long, or ends workers again and again.
        """
        self._reference.attempts += 0 if end.from_outside else 1
        if self._reference.attempts >= _REFERENCE_ATTEMPTS or end.reason is EndReason.DEADLINE:
            raise PluginError(
                f"the reference outputs of task {self._task.name!r} cannot be computed: "
                f"{end.explain()}",
                hint="raise reference_timeout or memory_mib of the runner",
            )
