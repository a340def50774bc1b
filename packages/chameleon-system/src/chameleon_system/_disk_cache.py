"""A cache of files in the user's cache folder.

The path of a file contains a digest of all that its content depends on.
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

from chameleon_system._files import user_cache_folder, write_atomic
from chameleon_system._processor import processor_name, this_processor

_LARGEST_CACHE = 4 << 30
"""Bytes of all files of one kind above which the least recently used ones are removed."""

_DIGEST_BYTES = 16

Value = TypeVar("Value")


def cache_path(kind: str, facts: Any) -> Path:
    """The path in the user's cache folder for content that was computed from some facts.

    Other facts lead to another path. The caller may make a file or a folder at the path.

    Args:
        kind: the name of a folder in the user's cache folder.
        facts: all facts that the content depends on, as JSON values.
    """
    digest = hashlib.blake2b(json.dumps(facts).encode(), digest_size=_DIGEST_BYTES)
    return user_cache_folder() / kind / digest.hexdigest()


@cache
def cache_key(distributions: Sequence[str], folders: Sequence[Path]) -> list[Any]:
    """Versions, code and processor, on which cached content depends, as facts for ``cache_path``.

    Args:
        distributions: names of Python distributions; those that are not installed are left out.
        folders: folders with Python code. A change of a file in them changes the key.
    """
    processor = this_processor()
    code = [
        (file.name, file.stat().st_size, file.stat().st_mtime_ns)
        for folder in folders
        for file in sorted(folder.rglob("*.py"))
    ]
    features = []
    if processor is not None:
        features = [processor.family, processor.model, *sorted(processor.flags)]
    return [[*_versions(distributions)], processor_name(), features, code]


def read_cached(file: Path, read: Callable[[Path], Value]) -> Value | None:
    """The value that ``read`` returns for a cached file; None if the file is missing or damaged."""
    try:
        value = read(file)
        if file.is_relative_to(user_cache_folder()):
            os.utime(_cache_entry(file))  # it was used now
    except (OSError, EOFError, ValueError, KeyError, TypeError, zipfile.BadZipFile):
        return None
    return value


def write_cached(file: Path, write: Callable[[Path], object]) -> None:
    """Write a file by ``write`` and evict old ones; an error of the file system is ignored."""
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        write(file)
        if file.is_relative_to(user_cache_folder()):
            _evict(_cache_entry(file))


def read_cached_bytes(file: Path) -> bytes | None:
    """Read the bytes that ``write_cached_bytes`` wrote; None if the file is missing or damaged."""

    def read(file: Path) -> bytes:
        content = file.read_bytes()
        digest, payload = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
        if digest != _digest(payload):
            raise ValueError("the file is damaged")
        return payload

    return read_cached(file, read)


def write_cached_bytes(file: Path, content: bytes) -> None:
    """Write bytes with their digest to the cache."""
    write_cached(file, lambda file: write_atomic(file, _digest(content) + content))


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=_DIGEST_BYTES).digest()


def _versions(distributions: Iterable[str]) -> Iterator[tuple[str, str]]:
    for name in distributions:
        with contextlib.suppress(PackageNotFoundError):
            yield name, version(name)


def _cache_entry(file: Path) -> Path:
    """The path from ``cache_path`` that is the file or contains it."""
    kind, name, *_ = file.relative_to(user_cache_folder()).parts
    return user_cache_folder() / kind / name


def _evict(latest: Path) -> None:
    """Remove the least recently used entries of one kind above the limit of size."""
    entries = sorted(latest.parent.iterdir(), key=lambda entry: -entry.stat().st_mtime)
    total = 0
    for entry in entries:
        files = entry.iterdir() if entry.is_dir() else [entry]
        total += sum(file.stat().st_size for file in files)
        if total > _LARGEST_CACHE and entry != latest:
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
