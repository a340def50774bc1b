"""Rivals have processes of their own, with a limit that none outlasts."""

import math
import os
from pathlib import Path

import pytest
from chameleon_core._errors import ChameleonError
from chameleon_tvm._rivals.launch import run_process, tuning_limit

PROGRAMS = {
    "hangs": "import time; time.sleep(600)",
    "fails": "import sys; print('of no interest'); sys.exit('out of luck')",
    "dies": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    "answers": """
import os, tempfile
from chameleon_system._processes.answers import AnswerStream, read_requests
answers, request = AnswerStream(), next(read_requests())
print("of no interest")
folders = [os.getcwd(), tempfile.mkdtemp()]
answers.send({**request, "threads": os.environ["TVM_NUM_THREADS"], "folders": folders})
""",
}


@pytest.fixture(autouse=True)
def programs(tmp_path, monkeypatch):
    for name, text in PROGRAMS.items():
        (tmp_path / f"rival_{name}.py").write_text(text, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")


def test_one_that_hangs_is_given_up():
    with pytest.raises(ChameleonError, match="rival_hangs was not done after 0 s and was killed"):
        run_process("rival_hangs", {}, 1, 0.2)


def test_one_that_fails_says_why():
    with pytest.raises(ChameleonError, match="rival_fails failed: out of luck"):
        run_process("rival_fails", {}, 1)


def test_one_that_dies_without_a_word():
    with pytest.raises(ChameleonError, match="rival_dies failed: SIGKILL"):
        run_process("rival_dies", {}, 1)


def test_one_that_answers():
    answer = run_process("rival_answers", {"seed": 7}, 3)
    assert (answer["seed"], answer["threads"]) == (7, "3")
    assert not any(Path(folder).exists() for folder in answer["folders"])


def test_the_limit_is_beyond_what_a_tuner_was_given():
    assert 100.0 < tuning_limit(100.0) < math.inf
    assert tuning_limit(100.0, 5) == tuning_limit(100.0)
    assert tuning_limit(0.0, 64) > tuning_limit(0.0, 5)
