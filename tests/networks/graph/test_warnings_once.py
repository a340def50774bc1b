"""TVM's warnings are shown once each, everything else as it was."""

import contextlib
import os

import pytest
import structlog
from chameleon_networks._graph import tvm_warnings as module
from chameleon_networks._graph.tvm_warnings import warnings_once


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.setattr(module, "_logged", set())


def _warn(words, at="06:09:17"):
    os.write(2, f"[{at}] /project/src/tirx/op.cc:12: Warning: {words}\n".encode())


def test_a_warning_is_shown_once(capfd):
    with structlog.testing.capture_logs() as logs:
        for second in range(3):
            with warnings_once():
                _warn("pow is slow", at=f"06:09:{second:02}")
                _warn("another", at=f"06:10:{second:02}")
                os.write(2, b"somebody else's line\n")
    assert [entry["words"] for entry in logs] == ["pow is slow", "another"]
    assert capfd.readouterr().err == "somebody else's line\n" * 3


def test_what_was_written_is_not_lost_in_an_error(capfd):
    with contextlib.suppress(ValueError), warnings_once():
        os.write(2, b"the last words\n")
        raise ValueError
    os.write(2, b"afterwards\n")
    assert capfd.readouterr().err == "the last words\nafterwards\n"
