"""A Python program in a process of its own, which ends no later than this one."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Self

from chameleon_system.processes.ending import kill_tree
from chameleon_system.processes.log_tail import LogTail
from chameleon_system.processes.spawning import spawn
from chameleon_system.processes.stamps import TOKEN, child_token

_LAUNCHER = "chameleon_system.processes.launcher"
_LOG_SECONDS = 1.0
_FIRST_LOOK, _LONGEST_LOOK = 0.002, 0.05


class ChildProcess:
    """Runs a module, as ``python -m`` does, in a session and process group of its own.

    The kernel kills it when this process ends, however it ends; what it started and what gets
    away carries its token.

    Args:
        module: the module's name.
        arguments: of its command line.
        environment: its environment variables; those of this process if None.
        folder: its working directory; that of this process if None.
        descriptors: file descriptors that it inherits.
        stdin: as ``subprocess`` has it.
        stdout: as ``subprocess`` has it; None for the log, where its errors go too.

    Attributes:
        token: the environment token that its descendants carry.

    Raises:
        OSError: it cannot be started.
    """

    def __init__(
        self,
        module: str,
        arguments: Sequence[str] = (),
        *,
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
        descriptors: Sequence[int] = (),
        stdin: int = subprocess.DEVNULL,
        stdout: int | None = None,
    ) -> None:
        self.token = child_token()
        command = [sys.executable, "-m", _LAUNCHER, str(os.getpid()), module, *arguments]
        variables = {**(os.environ if environment is None else environment), TOKEN: self.token}
        read, write = os.pipe()
        try:
            self._process = spawn(
                lambda: subprocess.Popen(
                    command,
                    stdin=stdin,
                    stdout=write if stdout is None else stdout,
                    stderr=write,
                    env=variables,
                    cwd=folder,
                    pass_fds=tuple(descriptors),
                    start_new_session=True,
                )
            )
        except BaseException:
            os.close(read)
            raise
        finally:
            os.close(write)
        self._log = LogTail(read)

    @property
    def pid(self) -> int:
        """Its process id, which is its process group's too."""
        return self._process.pid

    @property
    def stdin(self) -> IO[bytes] | None:
        """Its standard input, if that is a pipe."""
        return self._process.stdin

    @property
    def stdout(self) -> IO[bytes] | None:
        """Its standard output, if that is a pipe."""
        return self._process.stdout

    @property
    def alive(self) -> bool:
        """Whether it runs; one that has ended keeps its id until it is killed, too."""
        if self._process.returncode is not None:
            return False
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None

    @property
    def log(self) -> str:
        """The end of what it printed since ``clear_log``."""
        return self._log.text

    def clear_log(self) -> None:
        """Forget what it has printed so far."""
        self._log.clear()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to its process group, if it has not been killed."""
        if self._process.returncode is None:
            with contextlib.suppress(OSError):
                os.killpg(self.pid, number)

    def wait(self, seconds: float) -> bool:
        """Wait until it has ended, at most so long; returns whether it has."""
        limit = time.monotonic() + seconds
        pause = _FIRST_LOOK
        while self.alive:
            left = limit - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(pause, left))
            pause = min(2.0 * pause, _LONGEST_LOOK)
        return True

    def stop(self, grace: float) -> int:
        """Ask it to end (SIGTERM), and kill what is left after so many seconds.

        Returns:
            As ``kill``.
        """
        self.signal(signal.SIGTERM)
        return self.reap(grace)

    def reap(self, grace: float) -> int:
        """Wait until it has ended by itself, and kill what is left after so many seconds.

        Returns:
            As ``kill``.
        """
        self.wait(grace)
        return self.kill()

    def kill(self) -> int:
        """End it and all it started; safe to call twice.

        Returns:
            Its exit status as ``subprocess`` gives it: negative for a signal. One that had ended
            already keeps its own.
        """
        if self._process.returncode is None:
            kill_tree(self.pid, self.token)
            self._process.wait()
            for stream in (self.stdin, self.stdout):
                if stream is not None:
                    with contextlib.suppress(OSError):
                        stream.close()
            self._log.join(_LOG_SECONDS)
        return int(self._process.returncode)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


def status_words(status: int) -> str:
    """How a process ended: the signal's name, or number if it has none, or ``status`` and that.

    Args:
        status: its exit status, negative for a signal.
    """
    if status >= 0:
        return f"status {status}"
    try:
        return signal.Signals(-status).name
    except ValueError:
        return str(-status)
