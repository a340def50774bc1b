#!/usr/bin/env python3
"""Set up Chameleon in ``.venv`` and run it, or its tests, from a machine with Python alone.

    python3.11 bootstrap.py run examples/quickstart.yaml    any `chameleon` command
    python3.11 bootstrap.py test                            the tests; more words go to pytest

Only the standard library is used here, since nothing else is installed yet. A second call finds
the environment as it was left and goes straight to work.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent
ENVIRONMENT = ROOT / ".venv"
BIN = ENVIRONMENT / ("Scripts" if os.name == "nt" else "bin")
CONSTRAINTS = ROOT / "constraints.txt"

STEPS = (
    ("Collecting", "  finding out what that is"),
    ("Downloading", "  downloading"),
    ("Building", "  building"),
    ("Installing collected packages", "  unpacking"),
)
"""What pip's lines begin with, and what is said at the first of them."""
FILE = re.compile(r"Downloading (\S+?)-\d\S* \(([\d.]+) (bytes|kB|MB|GB)\)")
"""pip's line about a file that it begins to download."""
MEGABYTES = {"bytes": 1e-6, "kB": 1e-3, "MB": 1.0, "GB": 1e3}
LARGE = 100.0
"""Megabytes of a file that is named, since it takes a while."""
MOST_LARGE = 4
LAST_LINES = 15


def packages() -> list[Path]:
    """All packages of the monorepo; they pin each other, so pip has to see them together."""
    return sorted(path.parent for path in ROOT.glob("packages/*/pyproject.toml"))


def install(purpose: str, *requirements: str) -> None:
    """Install requirements into ``.venv`` once for each state of the files they depend on.

    Args:
        purpose: what the requirements are for; names the stamp that remembers them.
        requirements: arguments of ``pip install``.

    Raises:
        SystemExit: pip failed; says how, and where its log is.
    """
    inputs = [CONSTRAINTS, *(path / "pyproject.toml" for path in packages())]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in inputs)).hexdigest()
    stamp = ENVIRONMENT / f".installed-{purpose}"
    if stamp.exists() and stamp.read_text() == digest:
        return
    if not (BIN / "python").exists():
        print(f"Creating {ENVIRONMENT} ...", file=sys.stderr)  # noqa: T201
        venv.create(ENVIRONMENT, with_pip=True)
    print(f"Installing what is needed to {purpose} ...", file=sys.stderr)  # noqa: T201
    options = ("--progress-bar", "off", "--no-color", "--disable-pip-version-check")
    pip = (BIN / "python", "-m", "pip", "install")
    command: list[str | Path] = [*pip, *options, "-c", CONSTRAINTS, *requirements]
    log = ENVIRONMENT / f"installing-{purpose}.log"
    if not logged(command, log):
        last = log.read_text(errors="replace").splitlines()[-LAST_LINES:]
        lines = "\n".join(f"  {line}" for line in last)
        sys.exit(f"pip failed:\n{lines}\nThe whole log is {log}. The same command tries again.")
    stamp.write_text(digest)


def logged(command: list[str | Path], log: Path) -> bool:
    """Run pip with what it prints in a file, and tell how far it is in a few lines.

    Args:
        command: pip's.
        log: the file; what an earlier call left there is replaced.

    Returns:
        Whether it succeeded.
    """
    told: set[str] = set()
    downloaded = 0.0
    with (
        log.open("w", encoding="utf-8") as file,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        ) as pip,
    ):
        for line in pip.stdout or ():
            file.write(line)
            file.flush()
            step = next((said for begins, said in STEPS if line.lstrip().startswith(begins)), None)
            if (name := FILE.match(line.lstrip())) is not None:
                size = float(name[2]) * MEGABYTES[name[3]]
                if size >= LARGE and sum(one.startswith("  ... ") for one in told) < MOST_LARGE:
                    step = f"  ... {name[1]}, {size:.0f} MB, after {downloaded:.0f} MB"
                downloaded += size
            if step is not None and step not in told:
                told.add(step)
                print(step, file=sys.stderr, flush=True)  # noqa: T201
    return pip.returncode == 0


def main(arguments: list[str]) -> int:
    """Set up what the first argument needs, then run it; returns the exit code."""
    if sys.version_info < (3, 11):  # noqa: UP036 - nothing has checked it before
        print("Chameleon needs Python 3.11 or newer.", file=sys.stderr)  # noqa: T201
        return 2
    if not arguments or arguments[0] in {"-h", "--help"}:
        print(__doc__)  # noqa: T201
        return 0 if arguments else 2
    if arguments[0] == "test":
        install("test", "nox")
        command = [BIN / "nox", "-f", ROOT / "noxfile.py", "-s", "tests", "--", *arguments[1:]]
    else:
        install("run", *(word for path in packages() for word in ("-e", str(path))))
        command = [BIN / "chameleon", *arguments]
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
