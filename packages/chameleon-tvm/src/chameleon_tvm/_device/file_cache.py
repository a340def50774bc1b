"""Caches LLVM's answers about targets in files, to avoid the slow import of TVM."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from chameleon_system.api import keep, kept_path, recalled, surroundings, usable_cores, write_whole

Arguments = ParamSpec("Arguments")
Answer = TypeVar("Answer")


def cached_in_file(
    cacheable: Callable[[Any], bool] = lambda _: True,
) -> Callable[[Callable[Arguments, Answer]], Callable[Arguments, Answer]]:
    """A decorator that caches a function's JSON results in files, until TVM or Chameleon changes.

    Results for which ``cacheable`` is False, because they depend on more, are not cached.
    """

    def decorate(function: Callable[Arguments, Answer]) -> Callable[Arguments, Answer]:
        @functools.wraps(function)
        def cached(*arguments: Arguments.args, **keywords: Arguments.kwargs) -> Answer:
            facts = [function.__qualname__, arguments, keywords, _surroundings()]
            file = kept_path("targets", facts)
            known = recalled(file, _content)
            value: Answer = function(*arguments, **keywords) if known is None else known[0]
            if known is None and cacheable(value):
                keep(file, lambda file: write_whole(file, json.dumps([value])))
            return value

        return cached

    return decorate


def _content(file: Path) -> list[Any]:
    content: list[Any] = json.loads(file.read_text(encoding="utf-8"))
    return content


def _surroundings() -> list[Any]:
    """The versions and the processor on which cached results depend."""
    return [*surroundings(("apache-tvm",), (Path(__file__).parent,)), len(usable_cores())]
