"""The root class of Chameleon's errors, its subclasses, and the exit codes of commands."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from enum import IntEnum
from pathlib import Path


class ExitCode(IntEnum):
    """Exit codes of the ``chameleon`` command; docs/command-line.md explains them."""

    OK = 0
    NO_VALID_RESULT = 1
    USAGE = 2
    PLUGIN = 3
    DEVICE = 4
    THRESHOLD_MISSED = 5
    UNDECIDED = 6
    INTERNAL = 70
    INTERRUPTED = 130


class ChameleonError(Exception):
    """Root class of all errors that are written for users.

    Attributes:
        hint: the next step for the user, as a sentence, or None if there is no advice.
        exit_code: the exit code of a command that ends with this error.
        may_pass: whether the same command may succeed after a change of the machine, such as more
            free space. A run that could not deliver its network for this reason can be continued.
    """

    exit_code = ExitCode.INTERNAL
    may_pass = False

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint
        if hint is not None:
            # A traceback shows notes, so that users of the Python interface see the hint, too.
            self.add_note(hint)

    @property
    def command_hint(self) -> str | None:
        """The hint with flags of the command line for arguments in Python, as `fresh=True`."""
        if self.hint is None:
            return None
        return re.sub(
            r"`(\w+)=(?:True)?`", lambda word: f"--{word[1].replace('_', '-')}", self.hint
        )

    def with_hint(self) -> str:
        """The message and the hint in one line."""
        hint = self.hint or ""
        # The hint continues the sentence, so its first letter becomes lower-case, except in names
        # such as TVM.
        if hint[1:2].islower():
            hint = hint[0].lower() + hint[1:]
        return "; ".join(filter(None, [str(self).rstrip("."), hint.rstrip(".")]))

    @classmethod
    @contextlib.contextmanager
    def on_os_error(cls, problem: str, *, hint: str) -> Iterator[None]:
        """A context that raises this error in place of an ``OSError``.

        Args:
            problem: the message without its end, which is the reason that the system gives.
            hint: the next step for the user.
        """
        try:
            yield
        except OSError as error:
            raise cls(f"{problem}: {error.strerror or error}", hint=hint) from error


class ConfigError(ChameleonError):
    """A pipeline, an option or an argument is wrong."""

    exit_code = ExitCode.USAGE


class PluginError(ChameleonError):
    """A plugin is missing, broken or ambiguous, or it breaks its contract."""

    exit_code = ExitCode.PLUGIN


class TargetError(ChameleonError):
    """The target or the device cannot run the requested work."""

    exit_code = ExitCode.DEVICE


class DeviceLostError(ChameleonError):
    """A device cannot be reached at the moment.

    The runner uses other devices, and tries this device again later.
    """

    exit_code = ExitCode.DEVICE


class RunFolderError(ChameleonError):
    """The run folder cannot be used: it is locked, read-only, full, or of another pipeline."""

    exit_code = ExitCode.USAGE
    may_pass = True

    @classmethod
    def check_space(cls, folder: Path, needed: int) -> None:
        """Raise this error if a network cannot be delivered into a folder for lack of space.

        Args:
            folder: the run folder, which exists. The folder of temporary files is checked as well.
            needed: the estimated size of the network in bytes.
        """
        places = {folder: shutil.disk_usage(folder).free}
        places[Path(tempfile.gettempdir())] = shutil.disk_usage(tempfile.gettempdir()).free
        for place, free in places.items():
            if free < needed:
                raise cls(
                    f"the network needs about {_megabytes(needed)} in {place}, where "
                    f"{_megabytes(free)} are free",
                    hint="free space and give the same command again, or choose other folders: "
                    "`output=` for the run, TMPDIR for temporary files",
                )

    @classmethod
    @contextlib.contextmanager
    def on_full_disk(cls, folder: Path, needed: Callable[[], int]) -> Iterator[None]:
        """A context that raises this error in place of an ``OSError`` of a full disk.

        Args:
            folder: the folder of the network, whose parent exists.
            needed: a function that estimates the size of the network in bytes.
        """
        try:
            yield
        except OSError as error:
            # An error of several files has no number, but the texts of the files' errors.
            if not any(os.strerror(code) in str(error) for code in (errno.ENOSPC, errno.EDQUOT)):
                raise
            where = f"{folder.parent} and in {tempfile.gettempdir()}"
            free = _megabytes(shutil.disk_usage(folder.parent).free)
            failure = cls(
                f"the network cannot be delivered to {folder}, because a disk is full: it needs "
                f"about {_megabytes(needed())} each in {where}; {free} are free for the former",
                hint="free space and give the same command again: nothing is tuned anew",
            )
            raise failure from error


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.3g} MB"


class InvalidConfigurationError(ChameleonError):
    """A configuration describes no program. The runner records it as a failed measurement."""
