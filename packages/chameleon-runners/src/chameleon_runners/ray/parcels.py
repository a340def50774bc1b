"""Folders and files as bytes: what nodes without a common file system send each other."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

from chameleon_system.files import replacing


def pack(folder: Path) -> bytes:
    """A folder's contents."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.add(folder, arcname=".")
    return buffer.getvalue()


def unpack(parcel: bytes, folder: Path) -> None:
    """Put a packed folder's contents into a folder that does not exist yet."""
    folder.mkdir(parents=True)
    with tarfile.open(fileobj=io.BytesIO(parcel)) as archive:
        # Python knows filters from 3.11.4 on; older ones ignore the attribute.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(folder)  # noqa: S202 - it is filtered, and our own actor packed it


def write(data: bytes, path: Path) -> None:
    """Write a file so that a reader sees all of it or none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        file.write(data)
