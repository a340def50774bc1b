"""What tests of the corpus share: a small plan, and the command."""

import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
# At the end: a benchmark's name hides nothing that is installed.
sys.path.append(str(BENCHMARKS))

import corpus  # noqa: E402
import corpus_process  # noqa: E402

SMALL = """
title: small
target: native
budget: {measurements: 8, wall_time: 10s}
large: {gflop: 10, wall_time: 30s}
deadline: 1m
seen: [one]
cases:
  - {name: one, network: "some:one", source: written here, family: cnn, task: images, gflop: 1}
  - {name: two, network: "some:two", source: written here, family: cnn, task: images, gflop: 20,
     held_out: true}
  - {name: one_onnx, network: "some:one", form: onnx, source: written here, family: cnn,
     task: images, gflop: 1}
"""


@pytest.fixture(name="file")
def _file(tmp_path):
    file = tmp_path / "corpus.yaml"
    file.write_text(SMALL, encoding="utf-8")
    return file


@pytest.fixture(name="command")
def _command(monkeypatch, file, tmp_path):
    monkeypatch.setattr(corpus, "code_of", lambda _: "code")
    monkeypatch.setattr("corpus_runs.describe", lambda: {"cpu": {"model": "Some CPU"}})

    def command(*words):
        return corpus.main(["--plan", str(file), "--out", str(tmp_path / "out"), *words])

    return command


def ended(code=0, out="", err=""):
    return corpus_process.Ended(code=code, seconds=12.0, out=out, err=err)
