"""Caches LLVM's answers about targets in files, to avoid the slow import of TVM."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from chameleon_system.api import (
    cache_key,
    cache_path,
    read_cached,
    usable_cores,
    write_atomic,
    write_cached,
)

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
            facts = [function.__qualname__, arguments, keywords, _cache_key()]
            file = cache_path("targets", facts)
            known = read_cached(file, _content)
            value: Answer = function(*arguments, **keywords) if known is None else known[0]
            if known is None and cacheable(value):
                write_cached(file, lambda file: write_atomic(file, json.dumps([value])))
            return value

        return cached

    return decorate


def _content(file: Path) -> list[Any]:
    content: list[Any] = json.loads(file.read_text(encoding="utf-8"))
    return content


def _cache_key() -> list[Any]:
    """The versions and the processor on which cached results depend."""
    return [*cache_key(("apache-tvm",), (Path(__file__).parent,)), len(usable_cores())]
