"""Caches facts of LLVM about targets in files, to avoid the import of TVM, which takes a second.

The files are in the user's cache folder.
"""

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


def kept(
    keeps: Callable[[Any], bool] = lambda _: True,
) -> Callable[[Callable[Arguments, Answer]], Callable[Arguments, Answer]]:
    """A decorator that caches a function's results in files of the user's cache folder.

    The function's arguments are strings, and its results JSON values. On one machine, the function
    is called once for the same arguments. It is called again after TVM or Chameleon has changed.

    Args:
        keeps: A function that returns whether to cache a result. It should return False for a
            result that depends on more than versions and the processor.
    """

    def decorated(function: Callable[Arguments, Answer]) -> Callable[Arguments, Answer]:
        @functools.wraps(function)
        def answer(*arguments: Arguments.args, **named: Arguments.kwargs) -> Answer:
            facts = [function.__qualname__, arguments, named, _cache_key()]
            file = cache_path("targets", facts)
            known = read_cached(file, _content)
            value: Answer = function(*arguments, **named) if known is None else known[0]
            if known is None and keeps(value):
                write_cached(file, lambda file: write_atomic(file, json.dumps([value])))
            return value

        return answer

    return decorated


def _content(file: Path) -> list[Any]:
    content: list[Any] = json.loads(file.read_text(encoding="utf-8"))
    return content


def _cache_key() -> list[Any]:
    """What LLVM's answers, and what this package makes of them, depend on."""
    return [*cache_key(("apache-tvm",), (Path(__file__).parent,)), len(usable_cores())]
