"""The ways of a candidate and of a network through this repository, as trees of who calls whom.

``python tools/ways.py`` runs a small search and delivers a small network, watches which folders'
functions are called first and by whom, and writes both trees into ``docs/architecture.md``.
"""

from __future__ import annotations

import inspect
import multiprocessing
import os
import re
import sys
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "architecture.md"


class Way:
    """Folders in the order in which they are entered first, below the folder that entered them.

    Attributes:
        entered: for each folder the one that called it, and the function that it called.
    """

    def __init__(self) -> None:
        self.entered: dict[str, tuple[str, str]] = {}

    def watch(self, action: Callable[[], object]) -> None:
        """Do something and remember which folders it enters."""
        threading.setprofile(self._called)
        sys.setprofile(self._called)
        try:
            action()
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    def _called(self, frame: FrameType, event: str, _: Any) -> None:
        folder = _folder(frame) if event == "call" else None
        if folder is None or folder in self.entered or not _is_work(frame):
            return
        caller, outer = folder, frame.f_back
        while outer is not None and caller in {None, folder}:
            caller, outer = _folder(outer) or folder, outer.f_back
        self.entered[folder] = ("" if caller == folder else caller, frame.f_code.co_qualname)

    def lines(self, folder: str = "", depth: int = 0) -> list[str]:
        """The tree, a line for each folder with the function that entered it."""
        lines = []
        for inner, (caller, name) in self.entered.items():
            if caller == folder:
                lines.append(f"{'  ' * depth}{inner.replace('.', '/'):{44 - 2 * depth}} {name}")
                lines += self.lines(inner, depth + 1)
        return lines


def _folder(frame: FrameType) -> str | None:
    """The folder of a function's module, at most three names deep; None for others' modules."""
    *folder, _ = str(frame.f_globals.get("__name__", "")).split(".")
    ours = len(folder) > 1 and folder[0].startswith("chameleon_")
    return ".".join(folder[:3]) if ours else None


def _is_work(frame: FrameType) -> bool:
    """Whether a function with a name is called, by anything else than an import."""
    code, outer = frame.f_code, frame.f_back
    if not code.co_flags & inspect.CO_NEWLOCALS or code.co_name.startswith(("<", "__")):
        return False
    while outer is not None and not outer.f_code.co_filename.startswith("<frozen importlib"):
        outer = outer.f_back
    return outer is None


def candidate_way(folder: Path) -> Way:
    """The way of the candidates of a search."""
    dense = {"input": [16, 256], "units": 128}
    pipeline = {
        "model": {"operators": [{"dense": dense}]},
        "target": "native",
        "preset": "release",
        "budget": {"measurements": 16},
        "output": str(folder / "search"),
    }
    return _way(pipeline)


def network_way(folder: Path) -> Way:
    """The way of a network with its first guesses, from its framework to its folder."""
    pipeline = {
        "model": {"builtin": {"network": "resnet_small", "layout": "NHWC", "compare": False}},
        "target": "native",
        "budget": {"measurements": 0},
        "output": str(folder / "network"),
    }
    return _way(pipeline)


def _way(pipeline: dict[str, Any]) -> Way:
    from chameleon_core import tune  # noqa: PLC0415 - after the environment is set

    way = Way()
    way.watch(lambda: tune(pipeline))
    return way


def drawn(way: Callable[[Path], Way], folder: Path) -> list[str]:
    """The lines of a way, watched in a process of its own: earlier work leaves caches filled."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as fresh:
        return fresh.submit(_lines, way, folder).result()


def _lines(way: Callable[[Path], Way], folder: Path) -> list[str]:
    os.environ["CHAMELEON_RECORDS"] = "none"
    return way(folder).lines()


def written(text: str, title: str, lines: list[str]) -> str:
    """A page with the tree below a heading replaced."""
    tree = "\n".join(["```text", *lines, "```"])
    line = r"(?:(?!```).*\n)*"
    pattern = rf"(\n## {re.escape(title)}\n{line})```text\n{line}```"
    return re.sub(pattern, lambda match: match[1] + tree, text, count=1)


def main() -> None:
    """Draw both trees into the page."""
    with tempfile.TemporaryDirectory() as folder:
        ways = {"A candidate's way": candidate_way, "A network's way": network_way}
        text = PAGE.read_text(encoding="utf-8")
        for title, way in ways.items():
            text = written(text, title, drawn(way, Path(folder)))
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
