"""Where in a section the structurer is, and the errors that say so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from chameleon_core.pipeline.nodes import Collecting, Mark, Node, PipelineError, Problem


class KeyPath:
    """Follows the keys on the way to a value, for messages about it."""

    def __init__(self) -> None:
        self._owner = ""
        self._path: list[str] = []

    def _all(self, parts: Iterator[tuple[str, Callable[[], Any]]]) -> list[Any]:
        """Run every part and collect the problems of all of them."""
        made: list[Any] = []
        problems: list[Problem] = []
        for key, part in parts:
            with self._inside(key), Collecting(problems):
                made.append(part())
        if problems:
            raise PipelineError(problems)
        return made

    @contextmanager
    def _inside(self, key: str) -> Iterator[None]:
        self._path.append(key)
        try:
            yield
        finally:
            self._path.pop()

    def _dotted(self) -> str:
        return ".".join(self._path).replace(".[", "[")

    def _place(self) -> str:
        return f"'{self._dotted()}' of {self._owner}" if self._path else self._owner

    def _about(self) -> str:
        return f"option '{self._dotted()}' for {self._owner}" if self._path else self._owner

    def _wrong(self, node: Node, wanted: str, more: str = "") -> PipelineError:
        message = f"{self._about()} must be {wanted}, not {node.in_words()}{more}"
        return PipelineError([Problem(mark=node.mark, message=message)])

    def _failed(self, mark: Mark, words: str) -> PipelineError:
        # attrs' validators begin with the attribute's name, which is part of `about` already.
        named = f"'{self._path[-1]}' " if self._path else "\0"
        rest = f" {words.removeprefix(named)}" if words.startswith(named) else f": {words}"
        return PipelineError([Problem(mark=mark, message=f"{self._about()}{rest}")])
