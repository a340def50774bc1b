#!/usr/bin/env python3
"""Print the files that ``bootstrap.py run`` downloads, largest first, and their sum without torch.

    python tools/downloads.py             for this Python and machine, with the pinned versions
    python tools/downloads.py --limit 450 exits with 1 if all but torch's files are larger (MB)

pip resolves the requirements and installs nothing. It needs an index of packages.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import urllib.parse
import urllib.request
from collections.abc import Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import bootstrap

OF_TORCH = ("torch", "triton", "nvidia-", "cuda-")
"""torch's distribution, and those that its CUDA build brings along."""


def resolved() -> list[dict]:
    """The distributions that pip would install into an empty environment; items of its report."""
    words = [word for path in bootstrap.packages() for word in ("-e", str(path))]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        options = ("--dry-run", "--ignore-installed", "--quiet", "--report", str(report))
        pip = (sys.executable, "-m", "pip", "install", *options, "-c", str(bootstrap.CONSTRAINTS))
        subprocess.run([*pip, *words], check=True)
        items: list[dict] = json.loads(report.read_text())["install"]
    return items


def size_of(url: str) -> int:
    """Bytes of a file that pip would take."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme == "file":
        return Path(urllib.request.url2pathname(parts.path)).stat().st_size
    request = urllib.request.Request(url, method="HEAD")  # noqa: S310 - pip named it
    with urllib.request.urlopen(request) as answer:  # noqa: S310
        return int(answer.headers["Content-Length"])


def files_of(items: Iterable[dict]) -> dict[str, int]:
    """Bytes by distribution, without the packages of this repository, which are folders."""
    return {
        item["metadata"]["name"].lower(): size_of(item["download_info"]["url"])
        for item in items
        if "archive_info" in item["download_info"]
    }


def main(arguments: list[str]) -> int:
    """Print the table; returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--limit", type=float, help="MB besides torch")
    limit = parser.parse_args(arguments).limit
    sizes = files_of(resolved())
    for name, size in sorted(sizes.items(), key=lambda item: -item[1]):
        print(f"{size / 1e6:8.1f} MB  {name}")
    besides = sum(size for name, size in sizes.items() if not name.startswith(OF_TORCH)) / 1e6
    print(f"{besides:8.1f} MB  besides torch, {len(sizes)} distributions")
    return int(limit is not None and besides > limit)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
