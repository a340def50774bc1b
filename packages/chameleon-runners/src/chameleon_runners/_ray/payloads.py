"""Folders and files as bytes, to be sent between nodes without a common file system."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

from chameleon_system.api import open_atomic


def pack(folder: Path) -> bytes:
    """The contents of a folder as bytes."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.add(folder, arcname=".")
    return buffer.getvalue()


def unpack(payload: bytes, folder: Path) -> None:
    """Write the contents of a packed folder into a new folder."""
    folder.mkdir(parents=True)
    with tarfile.open(fileobj=io.BytesIO(payload)) as archive:
        # Python knows filters from 3.11.4 on; older ones ignore the attribute.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(folder)  # noqa: S202 - filtered, and packed by our own actor


def write(data: bytes, path: Path) -> None:
    """Write a file atomically, and make its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open_atomic(path) as file:
        file.write(data)
