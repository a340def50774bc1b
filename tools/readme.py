"""Write what ``chameleon run`` prints, and a picture of the report, into README.

    chameleon run examples/quickstart.yaml
    chameleon run examples/resnet18.yaml
    python tools/readme.py      # reads the folders below `runs`; --runs FOLDER reads others

A finished run is read, not measured again, so the figures are those of the two runs: make them on a
quiet machine, and name its CPU and the commit below the outputs. The picture needs playwright and
chromium.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PICTURE = ROOT / "docs" / "images" / "report.png"

PIPELINES = ("examples/quickstart.yaml", "examples/resnet18.yaml")
LONGEST = 16
"""Lines of an output that README shows whole; of a longer one, its first and its last three."""
SIZE = {"width": 1000, "height": 1190}


def shown(output: str) -> list[str]:
    """The lines of an output as README has them: without this machine's folders."""
    text = re.sub(r"(?:/[^\s/]+)+/runs/", "runs/", output)
    lines = text.replace("file://runs/", "file://.../runs/").strip().splitlines()
    return lines if len(lines) <= LONGEST else [*lines[:3], "...", *lines[-3:]]


def written(page: str, pipeline: str, lines: Sequence[str]) -> str:
    """A page with the output below the command that runs a pipeline replaced."""
    command = rf"```sh\n[^\n]* run {re.escape(pipeline)}[^\n]*\n```\n\n```text\n"
    found = re.search(rf"({command})(?:(?!```).*\n)*```", page)
    if found is None:
        raise SystemExit(f"README shows no output below the command that runs {pipeline}.")
    return "\n".join([page[: found.end(1)] + lines[0], *lines[1:], "```" + page[found.end() :]])


def photograph(report: Path, picture: Path) -> None:
    """The top of a page as a picture."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - only this needs it

    with sync_playwright() as playwright:
        arguments = ["--no-sandbox", "--disable-gpu"]
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=arguments
        )
        page = browser.new_page(viewport=SIZE)
        page.goto(report.as_uri())
        page.wait_for_selector("html[data-ready]")
        page.screenshot(path=picture)
        browser.close()


def chameleon(*words: str | Path) -> str:
    """What a command prints."""
    command = [sys.executable, "-m", "chameleon_cli", *map(str, words)]
    return subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.PIPE, text=True).stdout


def main(arguments: Sequence[str]) -> None:
    """Write the outputs and the picture."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=Path, default=ROOT / "runs", help="holds both run folders")
    runs = parser.parse_args(arguments).runs.absolute()
    page = README.read_text(encoding="utf-8")
    for pipeline in PIPELINES:
        folder = runs / Path(pipeline).stem
        page = written(page, pipeline, shown(chameleon("run", pipeline, "--output", folder)))
    README.write_text(page, encoding="utf-8")
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.html"
        chameleon("report", runs / "quickstart", "--output", report)
        photograph(report, PICTURE)


if __name__ == "__main__":
    main(sys.argv[1:])
