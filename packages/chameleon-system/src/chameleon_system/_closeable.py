"""A base class for objects that the end of a ``with`` statement closes."""

from __future__ import annotations

from typing import Self


class Closeable:
    """A context manager that closes itself. A subclass defines ``close``."""

    def close(self) -> None:
        """Release what the object holds."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
