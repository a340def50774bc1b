"""Keeps answers of LLVM about targets in files, because asking imports TVM for a second.

The files are in the user's cache folder.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import attrs
from chameleon_system.cores import usable_cores
from chameleon_system.files import user_cache_folder, write_whole
from chameleon_system.processor import this_processor

Arguments = ParamSpec("Arguments")
Answer = TypeVar("Answer")


def kept(
    keeps: Callable[[Any], bool] = lambda _: True,
) -> Callable[[Callable[Arguments, Answer]], Callable[Arguments, Answer]]:
    """A decorator that keeps a function's results in files of the user's cache folder.

    The function's arguments are strings, and its results JSON values. It is called once on a
    machine for the same arguments and versions.

    Args:
        keeps: A function that says of a result whether to keep it. A result that may change with
            other things than versions and the processor is not kept.
    """

    def decorated(function: Callable[Arguments, Answer]) -> Callable[Arguments, Answer]:
        @functools.wraps(function)
        def answer(*arguments: Arguments.args, **named: Arguments.kwargs) -> Answer:
            facts = json.dumps([function.__qualname__, arguments, named, _surroundings()])
            digest = hashlib.blake2b(facts.encode(), digest_size=16).hexdigest()
            file = user_cache_folder() / "targets" / f"{digest}.json"
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                known: Answer = json.loads(file.read_text(encoding="utf-8"))["answer"]
                return known
            value = function(*arguments, **named)
            if keeps(value):
                with contextlib.suppress(OSError):
                    file.parent.mkdir(parents=True, exist_ok=True)
                    write_whole(file, json.dumps({"answer": value}))
            return value

        return answer

    return decorated


@functools.cache
def _surroundings() -> list[Any]:
    """What LLVM's answers, and what this package makes of them, depend on."""
    processor = this_processor()
    facts = (
        {} if processor is None else attrs.asdict(processor) | {"flags": sorted(processor.flags)}
    )
    files = sorted(Path(__file__).parent.rglob("*.py"))
    code = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    return [version("apache-tvm"), facts, len(usable_cores()), code]
