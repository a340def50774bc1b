"""The examples of docs/python.md run as they stand there, one after the other."""

from __future__ import annotations

import re

import chameleon_core as cc

PYTHON = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def test_the_examples_run(root, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (root / "docs" / "python.md").read_text()
    blocks = PYTHON.findall(text)
    assert len(blocks) == text.count("```python") >= 7
    names: dict = {}
    for block in blocks:
        exec(block, names)  # noqa: S102 - our own documentation
    assert set(names) >= {"run", "found", "tuner", "fixed"}


def test_everything_that_is_exported_is_on_the_page(root):
    text = (root / "docs" / "python.md").read_text()
    shown = {"design_space", "load_run", "minimize", "tune", "Tuner", "STOP"}
    assert all(f"cc.{name}" in text for name in shown)
    # The others are classes of results, which functions return.
    assert set(cc.__all__) - shown == {
        "Asked", "Measurements", "Minimum", "Operator", "Run", "Trial",
    }  # fmt: skip
