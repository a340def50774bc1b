"""The site of the documentation builds without a warning: links, anchors and docstrings."""

import subprocess
import sys

import pytest

pytest.importorskip("sphinx")


def test_the_site_builds_without_warnings(root, tmp_path):
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-d", tmp_path / "trees"]
    built = subprocess.run(
        [*command, root / "docs", tmp_path / "site"], check=False, capture_output=True, text=True
    )
    assert built.returncode == 0, built.stderr
    assert (tmp_path / "site" / "index.html").is_file()
