"""One root error with a hint, and the exit code each kind of error ends a command with."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of the ``chameleon`` command; the README documents the same list."""

    OK = 0
    NO_VALID_RESULT = 1
    USAGE = 2
    PLUGIN = 3
    DEVICE = 4
    THRESHOLD_MISSED = 5
    INTERNAL = 70
    INTERRUPTED = 130


class ChameleonError(Exception):
    """Root of every error a user is meant to read.

    Attributes:
        hint: what to do next, as a sentence, or None.
        exit_code: what the command line exits with when this error ends a command.
    """

    exit_code = ExitCode.INTERNAL

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint
        if hint is not None:
            # A traceback shows notes, which is all that programs see of an error they let pass.
            self.add_note(hint)


class ConfigError(ChameleonError):
    """A pipeline, an option or an argument is wrong."""

    exit_code = ExitCode.USAGE


class PluginError(ChameleonError):
    """A plugin is missing, broken, ambiguous or breaks its contract."""

    exit_code = ExitCode.PLUGIN


class TargetError(ChameleonError):
    """The target or the device cannot do what is asked."""

    exit_code = ExitCode.DEVICE


class DeviceLostError(ChameleonError):
    """A device cannot be reached, now; the runner tries elsewhere, and this one again later."""

    exit_code = ExitCode.DEVICE


class RunFolderError(ChameleonError):
    """The run folder cannot be used: locked, read-only, full, or of another pipeline."""

    exit_code = ExitCode.USAGE


class InvalidConfigurationError(ChameleonError):
    """A configuration names no program; the runner turns it into a measurement, not a crash."""
