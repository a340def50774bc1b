"""Processes with a deadline, each with all it starts."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence

import attrs


@attrs.frozen(kw_only=True)
class Ended:
    """A process that has ended.

    Attributes:
        code: its exit status; None where the deadline killed it.
        seconds: it took.
        out: what it printed.
        err: what it said.
    """

    code: int | None
    seconds: float
    out: str
    err: str


def in_time(command: Sequence[str], environment: Mapping[str, str], limit: float) -> Ended:
    """Run a command in a group of its own, and end the whole group at the deadline.

    Args:
        command: program and arguments.
        environment: its variables.
        limit: seconds.

    Raises:
        KeyboardInterrupt: somebody asked this process to stop; the command was asked, too.
    """
    started = time.monotonic()
    process = subprocess.Popen(
        list(command),
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    code: int | None
    try:
        out, err = process.communicate(timeout=limit)
        code = process.returncode
    except subprocess.TimeoutExpired:
        _signal(process, signal.SIGKILL)
        out, err = process.communicate()
        code = None
    except KeyboardInterrupt:
        _signal(process, signal.SIGINT)
        process.communicate()
        raise
    finally:
        # Whatever it started and left behind would disturb the next one.
        _signal(process, signal.SIGKILL)
    return Ended(code=code, seconds=time.monotonic() - started, out=out, err=err)


def last_words(err: str) -> str:
    """The line that says why a command failed."""
    lines = [line for line in err.strip().splitlines() if line.strip()]
    return next((one for one in lines if one.startswith("internal error:")), (lines or [""])[-1])


def _signal(process: subprocess.Popen[str], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)
