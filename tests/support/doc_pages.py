"""The commands and the Python that pages of docs show."""

import re
import shlex
from pathlib import Path

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^ *```(\w+)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
PYTHON = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
SHELLS = {"sh", "bash", "console"}


def blocks(file):
    return FENCE.findall(file.read_text(encoding="utf-8"))


def commands_of(file):
    """The command lines of `chameleon` that a page shows, each as words."""
    for language, text in blocks(file):
        if language in SHELLS:
            for line in text.replace("\\\n", " ").splitlines():
                words = shlex.split(line.removeprefix("$ "), comments=True)
                program = words[0].rpartition("/")[2] if words else ""
                if program in {"python3.11", "python"} and words[1:2] == ["bootstrap.py"]:
                    if words[2] != "test":
                        yield words[2:]
                elif program == "chameleon":
                    yield words[1:]
