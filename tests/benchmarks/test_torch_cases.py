"""A fraction of torch's own samples of its operators are right or refused."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
pytest.importorskip("expecttest")

import case_suite

FRACTION = 0.05


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_torchs_samples_are_right_or_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = ("1",)
    suite = "torch_cases:OpInfoCases"
    assert case_suite.main(suite, ["--fraction", str(FRACTION)], options=options) == 0
    [file] = tmp_path.glob("runs/*.jsonl")
    kinds = [outcome.kind for outcome in case_suite.Outcomes(file).by_case.values()]
    networks = [kind for kind in kinds if kind != case_suite.NO_NETWORK]
    assert networks.count(case_suite.RIGHT) >= 0.8 * len(networks)
