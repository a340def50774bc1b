"""The examples of docs/python.md run as they stand there, one after the other."""

import doctest

import chameleon_core as cc
import chameleon_networks
import pytest
from doc_pages import PYTHON


@pytest.mark.full
def test_the_examples_run(root, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (root / "docs" / "python.md").read_text()
    blocks = PYTHON.findall(text)
    assert len(blocks) == text.count("```python") >= 7
    names = {}
    for block in blocks:
        exec(block, names)  # noqa: S102 - our own documentation
    assert set(names) >= {"run", "found", "tuner", "fixed"}


def run_example(function):
    (example,) = doctest.DocTestFinder(recurse=False).find(function, globs={})
    assert example.examples
    assert doctest.DocTestRunner().run(example).failed == 0


@pytest.mark.full
def test_the_example_of_each_function_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # In this order: the last one reads the folder of the one before.
    for function in (cc.design_space, cc.minimize, cc.Tuner, cc.tune, cc.load_run):
        run_example(function)


@pytest.mark.long
def test_the_example_of_a_delivered_network_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = {"builtin": {"network": "resnet_small", "compare": False}}
    output = "runs/resnet_small"
    cc.tune(model=model, target="native", budget={"measurements": 0}, output=output, progress=False)
    run_example(chameleon_networks.load)


def test_everything_that_is_exported_is_on_the_page(root):
    text = (root / "docs" / "python.md").read_text()
    shown = {"design_space", "load_run", "minimize", "tune", "Tuner", "STOP"}
    assert all(f"cc.{name}" in text for name in shown)
    # The others are classes of results, which functions return.
    assert set(cc.__all__) - shown == {
        "Measurements", "Minimum", "Run", "Trial",
    }  # fmt: skip
