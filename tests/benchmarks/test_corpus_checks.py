"""`corpus.py --check` tells what fails, which kernels take long, and how long a check takes."""

import json
from pathlib import Path

import corpus_checks as checks

from .conftest import ended


def test_checks_tell_failures_and_kernels(command, monkeypatch, capsys):
    answers = iter(
        [
            {
                "step": "check",
                "seconds": {"check": 3.2},
                "failure": {"type": "E", "message": "no\nway", "hint": "go", "refused": True},
            },
            {
                "step": "deliver",
                "seconds": {"check": 1.0, "deliver": 2.0},
                "tasks": ["a"],
                "network": {
                    "failure": None,
                    "reference": "torch",
                    "unverified": None,
                    "max_relative_error": 1e-6,
                    "kernels": [
                        {"name": "conv", "tuned": True, "calls": 2, "seconds": 0.003},
                        {"name": "softmax", "tuned": False, "calls": 1, "seconds": 0.001},
                    ],
                },
            },
            None,
        ]
    )

    def fake(words, *_):
        answer = next(answers) if "corpus_check.py" in words[1] else {}
        if answer is None:
            return ended(code=-9, err="Killed\n")
        if answer:
            Path(words[3]).write_text(json.dumps(answer), encoding="utf-8")
        return ended()

    monkeypatch.setattr(checks, "in_time", fake)
    monkeypatch.setattr(checks, "export", lambda *_: None)
    assert command("--check", "--all") == 1
    page = capsys.readouterr().out
    assert "- one: refused in step 'check', check 3 s: E: no way hint: go" in page
    assert "two: verified, off by 1.0e-06, 1 tasks, check 1 s, deliver 2 s" in page
    assert "- two: 4 ms, 75% in tasks; conv* x 2 75%, softmax x 1 25%" in page
    assert "- one_onnx: fails in step 'unknown', no step: ended with status -9: Killed" in page
    assert "1 of 3 networks are verified untuned, 1 refused before tuning, 1 fail." in page
    assert "No network was verified or refused before tuning" in page
    by = "1 of 1 delivered networks are verified by another implementation (torch 1)"
    assert f"{by}; without one: none." in page


def test_networks_that_nothing_else_runs_are_named():
    results = {"a": ("torch", None), "b": ("untuned", "no framework can")}
    delivered = [
        {"case": case, "network": {"reference": reference, "unverified": reason}}
        for case, (reference, reason) in results.items()
    ]
    sentence = checks.references(delivered)
    assert sentence.startswith("1 of 2 delivered networks are verified by another implementation")
    assert sentence.endswith("(torch 1); without one: b.")


def test_checks_tell_how_long_it_takes_until_a_network_is_verified_or_refused(
    command, monkeypatch, capsys
):
    steps = {"export": 4.0, "compile": 5.5}
    answers = iter(
        [
            {
                "step": "check",
                "seconds": {"start": 1.0, "check": 29.0},
                "failure": {"type": "E", "message": "no", "hint": None, "refused": True},
            },
            {
                "step": "check",
                "seconds": {"start": 1.0, "check": 10.0},
                "checked": {"summary": "it compiles", "step_seconds": steps},
            },
        ]
    )

    def fake(words, *_):
        if "corpus_check.py" in words[1]:
            assert "--before-tuning" in words
            Path(words[3]).write_text(json.dumps(next(answers)), encoding="utf-8")
        return ended()

    monkeypatch.setattr(checks, "in_time", fake)
    assert command("--check", "--before-tuning", "--only", "one", "two") == 1
    page = capsys.readouterr().out
    assert "two: it compiles, start 1 s, check 10 s" in page
    assert "after 20.5 s (median), at most 30.0 s (one); 1 of 2 after more than 20 s." in page
    assert "| two | 11.0 | export 4.0, compile 5.5 |" in page


def test_checks_in_types_tell_what_was_delivered_and_its_errors(command, monkeypatch, capsys):
    front = [
        {"types": {"float32": 3}, "seconds": 2e-3, "error": 0.0, "delivered": False},
        {"types": {"int7": 2, "float32": 1}, "seconds": 1e-3, "error": 4e-3, "delivered": True},
    ]
    kernel = {"name": "conv", "tuned": True, "calls": 2, "seconds": 0.003}
    answer = {
        "step": "precision",
        "seconds": {"deliver": 2.0},
        "tasks": ["a"],
        "network": {"failure": None, "max_relative_error": 5e-3, "kernels": [kernel]},
        "precision": {
            "precision": "int8, the rest float32",
            "summary": "of 3 operators 2 in int7",
            "front": front,
            "types": front[1]["types"],
            "fresh_error": 6e-3,
            "megabytes": 900,
        },
    }

    def fake(words, *_):
        pipeline = Path(words[2]).read_text(encoding="utf-8")
        assert "search" in pipeline
        assert "max_error" in pipeline
        Path(words[3]).write_text(json.dumps(answer), encoding="utf-8")
        return ended()

    monkeypatch.setattr(checks, "in_time", fake)
    types = ("--precision", "int8", "bfloat16", "--max-error", "0.01")
    assert command("--check", "--only", "one", *types) == 0
    row = "| one | 3 | 4.0e-03 | int7 2, float32 1 | 5.0e-03 | 6.0e-03 | 900 | of 3 operators 2"
    assert row in capsys.readouterr().out
    assert command("--only", "one", *types) == 2
    assert "--precision is for checks" in capsys.readouterr().err
