"""Files in the user's cache folder that later processes read instead of computing them again.

The path of a file contains a digest of all that the file's content depends on.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeVar

import attrs

from chameleon_system._files import user_cache_folder, write_whole
from chameleon_system._processor import processor_name, this_processor

_MOST_BYTES = 4 << 30
"""Limit for all files of one kind. Above it, the least recently used ones are removed."""

_DIGEST_BYTES = 16

Known = TypeVar("Known")


@attrs.frozen
class KeptFile:
    """A file in the user's cache folder, or in a folder of a run, that may be missing.

    Args:
        path: the file, in or at a path from ``path_of``, or in a folder of a run.
    """

    path: Path

    @staticmethod
    def path_of(kind: str, facts: Any) -> Path:
        """The path in the user's cache folder for content that was computed from some facts.

        Other facts lead to another path. So content that was computed from old facts is never read.
        The caller may make a file or a folder at the path.

        Args:
            kind: The name of a folder in the user's cache folder.
            facts: All facts that the content depends on, as JSON values.
        """
        return user_cache_folder() / kind / _digest(json.dumps(facts).encode()).hex()

    def read(self, read: Callable[[Path], Known]) -> Known | None:
        """The content that a function reads from the file; None if it is missing or damaged."""
        try:
            value = read(self.path)
            if self.path.is_relative_to(user_cache_folder()):
                os.utime(_entry(self.path))  # it was used now
        except (OSError, EOFError, ValueError, KeyError, TypeError, zipfile.BadZipFile):
            return None
        return value

    def write(self, write: Callable[[Path], object]) -> None:
        """Let a function write the file; without an error if the file cannot be written."""
        with contextlib.suppress(OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write(self.path)
            if self.path.is_relative_to(user_cache_folder()):
                _remove_old(_entry(self.path))

    def read_bytes(self) -> bytes | None:
        """The bytes that ``write_bytes`` wrote; None if the file is missing or damaged."""
        return self.read(_checked)

    def write_bytes(self, content: bytes) -> None:
        """Write some bytes with their digest; without an error if they cannot be written."""
        self.write(lambda file: write_whole(file, _digest(content) + content))


@cache
def surroundings(distributions: Sequence[str], folders: Sequence[Path]) -> list[Any]:
    """Facts about versions, code and the processor, on which cached content depends.

    They are JSON values, for ``KeptFile.path_of``.

    If one of these facts changes, content in the cache folder gets a new path, and so is computed
    again.

    Args:
        distributions: The names of Python distributions, whose versions are among the facts.
            Distributions that are not installed are left out.
        folders: Folders with Python code. A change of a file in them changes the facts.
    """
    processor = this_processor()
    code = [
        (file.name, file.stat().st_size, file.stat().st_mtime_ns)
        for folder in folders
        for file in sorted(folder.rglob("*.py"))
    ]
    known = []
    if processor is not None:
        known = [processor.family, processor.model, *sorted(processor.flags)]
    return [[*_versions(distributions)], processor_name(), known, code]


def _checked(file: Path) -> bytes:
    content = file.read_bytes()
    digest, known = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
    if digest != _digest(known):
        raise ValueError("the file is damaged")
    return known


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=_DIGEST_BYTES).digest()


def _versions(distributions: Iterable[str]) -> Iterator[tuple[str, str]]:
    for name in distributions:
        with contextlib.suppress(PackageNotFoundError):
            yield name, version(name)


def _entry(file: Path) -> Path:
    """The path from ``KeptFile.path_of`` that is a file or contains it."""
    kind, name, *_ = file.relative_to(user_cache_folder()).parts
    return user_cache_folder() / kind / name


def _remove_old(latest: Path) -> None:
    """Remove what was used least recently, if all of one kind takes too much room."""
    entries = sorted(latest.parent.iterdir(), key=lambda entry: -entry.stat().st_mtime)
    total = 0
    for entry in entries:
        files = entry.iterdir() if entry.is_dir() else [entry]
        total += sum(file.stat().st_size for file in files)
        if total > _MOST_BYTES and entry != latest:
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
