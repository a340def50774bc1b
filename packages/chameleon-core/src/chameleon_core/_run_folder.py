"""The folder of a run, which one process uses at a time, and which belongs to one pipeline."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import attrs
import structlog
from chameleon_system.api import unused_path, write_atomic

from chameleon_core import _versions as versions
from chameleon_core._errors import ChameleonError, ExitCode, RunFolderError
from chameleon_core._pipeline.binding import difference
from chameleon_core._pipeline.schema import Budget, ResolvedPipeline
from chameleon_core._run_files import RunFile
from chameleon_core._store import RecordStore

log = structlog.get_logger()

LOCK = ".lock"

FAILED = "failed"
"""Key under which a run's store keeps the message of the error that ended its last process."""


class RunFolder:
    """An open run folder, which is locked for this process until it is closed.

    Args:
        path: the folder, which is made if it does not exist.
        fresh: whether to move the files of an earlier run into a folder ``earlier-<n>``, and start
            a new run.

    Raises:
        RunFolderError: the folder cannot be made or written, or another process uses it.
    """

    def __init__(self, path: Path, *, fresh: bool = False) -> None:
        self.path = path.absolute()
        self._lock: int | None = None
        self._is_unfinished = False
        with _translate_errors(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = _locked(self.path / LOCK)
        try:
            if fresh:
                with _translate_errors(self.path):
                    self._move_aside()
            self.store = RecordStore(self.path / RunFile.RECORDS)
        except BaseException:
            self._unlock()
            raise

    @property
    def events(self) -> Path:
        """The path of the event log."""
        return self.path / RunFile.EVENTS

    def claim(self, pipeline: ResolvedPipeline, text: str) -> None:
        """Check that the folder's measurements belong to a pipeline, and store the pipeline.

        Measurements belong to a pipeline if the parts that times depend on are equal. A folder
        without measurements accepts any pipeline.

        Args:
            pipeline: the pipeline that is about to run in the folder.
            text: the expanded pipeline as YAML.

        Raises:
            RunFolderError: the measurements belong to another pipeline. The message names the
                differences.
        """
        owner = self.store.fact("pipeline")
        differs = None if owner is None else difference(owner["document"], pipeline)
        if differs is not None:
            self._forget(f"{self.path} belongs to another pipeline: {differs}")
        self.store.set_fact(
            "pipeline", {"digest": pipeline.digest, "document": dict(pipeline.document)}
        )
        self.write(RunFile.PIPELINE, text)

    def claim_target(self, target: str) -> None:
        """Check that the folder's measurements are for a resolved target, and store the target.

        Args:
            target: the resolved target.

        Raises:
            RunFolderError: the measurements are for another target. This happens, for example, if
                the target ``native`` is resolved on another machine.
        """
        owner = self.store.fact("target")
        if owner not in {None, target}:
            problem = f"{self.path} holds records for target '{owner}', not for '{target}'"
            self._forget(problem, but="pipeline")
        self.store.set_fact("target", target)

    def _forget(self, problem: str, *, but: str | None = None) -> None:
        """Delete records that do not apply; raise an error if there are measurements among them."""
        if self.store.measured:
            raise RunFolderError(
                problem,
                hint="tune into another folder (`output=`), or start anew here (`fresh=True`)",
            )
        self.store.forget(but=but)

    def finished(self, pipeline: ResolvedPipeline) -> dict[str, Any] | None:
        """The stored result, if a run with the same pipeline and budget has ended in this folder.

        Otherwise the result is None.

        Args:
            pipeline: the pipeline that is about to run in the folder.
        """
        fact = self.store.fact("finished")
        if fact is None or _in_full(fact["identity"]) != _identity(pipeline):
            return None
        result: dict[str, Any] = fact["result"]
        return result

    def finish(self, pipeline: ResolvedPipeline, result: Mapping[str, Any] | None) -> None:
        """Store the result of a run that has ended, also in ``best.json``.

        Args:
            pipeline: the pipeline of the run.
            result: the result as JSON values. None makes the run count as unfinished again.
        """
        fact = None
        if result is not None:
            self.write(RunFile.BEST, json.dumps(result, indent=1) + "\n")
            fact = {"identity": _identity(pipeline), "result": result}
        self.store.set_fact("finished", fact)
        self._is_unfinished = result is None
        if self._is_unfinished and self.store.fact(FAILED) is not None:
            self.store.set_fact(FAILED, None)

    def keep_versions(
        self, pipeline: ResolvedPipeline, described: Mapping[str, Any], *, at_end: bool = False
    ) -> versions.Versions:
        """Store the versions of all distributions that took part, and log which ones have changed.

        Args:
            pipeline: the pipeline of the run.
            described: the runner's description of itself. Its key ``versions`` has the versions in
                worker processes and on devices.
            at_end: whether the run ends, so that the versions of all imported libraries are looked
                up too. This takes half a second, and stages import some libraries only when they
                need them.
        """
        stored: versions.Versions = self.store.fact("versions") or {}
        elsewhere = described.get("versions")
        own = versions.distributions_of(pipeline)
        others = {*stored, *(versions.imported() if at_end else ())}.difference(own)
        # A distribution that took part before counts even if it is no longer installed.
        elsewhere = elsewhere if isinstance(elsewhere, dict) else {}
        now = {**elsewhere, **versions.installed(sorted(others)), **versions.versions(own)}
        changed = versions.changes(stored, now)
        if changed:
            log.warning(
                "versions_changed",
                reason="the run may propose and measure otherwise than with the former versions",
                versions=changed,
            )
        took_part = {**stored, **now}
        self.store.set_fact("versions", took_part)
        return took_part

    def write(self, name: str, text: str) -> None:
        """Write a file of the folder, so that a reader sees either the old or the new content.

        Args:
            name: the name of the file.
            text: the new content.
        """
        with _translate_errors(self.path):
            write_atomic(self.path / name, text)

    def close(self) -> None:
        """Close the store and unlock the folder. A second call does nothing."""
        self.store.close()
        self._unlock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if self._is_unfinished and isinstance(error, Exception):
            self._keep_failure(error)
        self.close()

    def _keep_failure(self, error: Exception) -> None:
        """Store the error that ended a run. A request to stop is no error."""
        if not isinstance(error, ChameleonError):
            why = f"{type(error).__name__}: {error}"
        elif error.exit_code is ExitCode.INTERRUPTED:
            return
        else:
            why = str(error)
        # On a full disk this write fails too; the user sees the original error.
        with contextlib.suppress(ChameleonError):
            self.store.set_fact(FAILED, why)

    def _unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _move_aside(self) -> None:
        old = [self.path / name for name in RunFile if (self.path / name).exists()]
        old += self.path.glob(f"{RunFile.RECORDS}-*")  # further files of SQLite
        if not old:
            return
        aside = unused_path(self.path, "earlier-{}")
        aside.mkdir()
        for file in old:
            file.rename(aside / file.name)
        log.warning("earlier_run_moved_aside", to=str(aside))


def _identity(pipeline: ResolvedPipeline) -> Any:
    """The facts that must not change for a finished run to count as finished, as JSON values."""
    described = {"digest": pipeline.digest, "budget": attrs.asdict(pipeline.budget)}
    return json.loads(json.dumps(described))


def _in_full(identity: Mapping[str, Any]) -> Any:
    """The facts of an earlier Chameleon, with default values for limits that it did not have."""
    defaults = json.loads(json.dumps(attrs.asdict(Budget())))
    return {**identity, "budget": {**defaults, **identity["budget"]}}


def _locked(path: Path) -> int:
    """A file descriptor that holds the lock. The kernel releases the lock when the process ends."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        _flock(lock)
    except BlockingIOError as error:
        holder = os.read(lock, 32).decode(errors="replace").strip()
        os.close(lock)
        raise RunFolderError(
            f"{path.parent} is being written by another run (process {holder or 'unknown'})",
            hint="wait for it, stop it, or tune into another folder (`output=`)",
        ) from error
    except OSError:
        os.close(lock)
        raise
    with contextlib.suppress(OSError):  # the number is only for error messages
        os.ftruncate(lock, 0)
        os.write(lock, f"{os.getpid()}\n".encode())
    return lock


def _flock(lock: int, *, tries: int = 10, pause: float = 0.02) -> None:
    """Take the lock.

    It is tried several times, because ``chameleon status`` holds the lock for a moment.
    """
    for left in reversed(range(tries)):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not left:
                raise
            time.sleep(pause)
        else:
            return


def _translate_errors(path: Path) -> contextlib.AbstractContextManager[None]:
    return RunFolderError.on_os_error(
        f"cannot write to the run folder {path}",
        hint="restore access or free space, or choose another folder (`output=`)",
    )
