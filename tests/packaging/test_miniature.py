"""The miniature finds a kernel that computes right numbers, and its page shows each part of it."""

import ast
import importlib
import re

import numpy as np
import pytest

from .conftest import ROOT

FILE = ROOT / "examples" / "miniature.py"
PAGE = ROOT / "docs" / "miniature.md"


@pytest.fixture
def miniature(monkeypatch):
    """The example, with small matrices."""
    monkeypatch.syspath_prepend(FILE.parent)
    module = importlib.import_module("miniature")
    monkeypatch.setattr(module, "SIZE", 64)
    monkeypatch.setitem(module.KNOBS, "columns", (4, 8, 16, 32, 64))
    monkeypatch.setattr(module.Space, "sizes", np.array([5, 5, 6, 4, 2, 2]))
    return module


def test_it_has_at_most_200_lines():
    assert len(FILE.read_text(encoding="utf-8").splitlines()) <= 200


def test_a_run_measures_legal_new_configurations_and_finds_a_right_kernel(miniature):
    *_, (configs, seconds) = miniature.tune(rounds=2, most=4)
    assert 3 < len(configs) == len(seconds) <= 8
    assert miniature.Space().legal(configs).all()
    assert len(np.unique(configs, axis=0)) == len(configs)
    assert np.isfinite(seconds.min())


def test_a_candidate_that_fails_is_a_measurement(miniature, monkeypatch):
    illegal = np.array([0, 0, 0, 3, 0, 0])
    assert not miniature.Space().legal(illegal[None]).any()
    assert miniature.measure(illegal) == np.inf
    right = np.array([1, 1, 1, 1, 0, 0])
    assert np.isfinite(miniature.measure(right))
    product = miniature.te.sum
    monkeypatch.setattr(miniature.te, "sum", lambda value, axis: product(value + 1, axis=axis))
    assert miniature.measure(right) == np.inf


def test_the_explorer_finds_what_the_model_prefers(miniature):
    space, model, rng = miniature.Space(), miniature.CostModel(), np.random.default_rng(0)
    known = space.sample(64, rng)
    model.learn(known, 1.0 + known[:, 0])
    found = miniature.explore(space, model, known, rng)
    assert space.legal(found).all()
    assert len(miniature.fresh(found, known)) == len(found) == 64
    assert found[:, 0].mean() < 0.5 < space.sample(64, rng)[:, 0].mean()


def test_the_sampler_keeps_few_candidates_one_of_each_cluster(miniature):
    space, rng = miniature.Space(), np.random.default_rng(0)
    candidates = miniature.explore(space, miniature.CostModel(), np.empty((0, 6), int), rng)
    kept = miniature.adaptive_sample(candidates, 32, 0)
    assert 0 < len(kept) < len(candidates) / 2
    # In twelve groups of equal candidates, the knee is at twelve clusters.
    groups = 10 * np.arange(12)[:, None] + np.zeros((12, 6), int)
    kept = miniature.adaptive_sample(np.repeat(groups, 5, axis=0), 12, 0)
    assert sorted(kept[:, 0]) == sorted(groups[:, 0])


def test_the_mode_replaces_what_cannot_be_measured(miniature):
    space = miniature.Space()
    candidates = np.array(
        [[1, 2, 1, 1, 0, 0]] * 3 + [[1, 3, 1, 1, 0, 1]] * 2 + [[2, 2, 1, 1, 0, 0]]
    )
    illegal, measured, kept = [0, 0, 0, 3, 0, 0], [0, 1, 0, 0, 0, 0], [0, 2, 0, 0, 0, 0]
    batch = np.array([illegal, kept, measured])
    refined = miniature.synthesize(space, batch, candidates, np.array([measured]))
    assert refined[:2].tolist() == [kept, [1, 2, 1, 1, 0, 0]]
    assert len(refined) == len(batch)
    again = miniature.synthesize(space, batch[:1], candidates, refined)
    assert space.legal(again).all()
    assert len(miniature.fresh(again, refined)) == 1


def test_the_page_shows_every_part_of_the_file():
    page = PAGE.read_text(encoding="utf-8")
    shown = re.findall(r"^:pyobject: (\w+)$", page, re.MULTILINE)
    body = ast.parse(FILE.read_text(encoding="utf-8")).body
    named = [node.name for node in body if isinstance(node, ast.ClassDef | ast.FunctionDef)]
    assert shown == named
    text = FILE.read_text(encoding="utf-8")
    for marker in re.findall(r"^:(?:start-at|end-before): (.*)$", page, re.MULTILINE):
        assert text.count(f"\n{marker}") == 1
