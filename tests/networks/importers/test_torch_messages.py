"""What torch has to say itself comes after our sentence, where tracebacks are wanted."""

import io
import logging
import sys
import traceback

import pytest
from chameleon_core._errors import ConfigError
from chameleon_networks._importers.torch.programs import export_source, hold_back_torch_messages


@pytest.fixture
def logged():
    """What a logger of torch's has written; a handler of it takes warnings only."""
    stream = io.StringIO()
    logger = logging.getLogger("torch.of_a_test")
    handler = logging.StreamHandler(stream)
    handler.setLevel(logging.WARNING)
    logger.addHandler(handler)
    logger.propagate = False
    yield stream
    logger.removeHandler(handler)


def speak():
    logging.getLogger("torch.of_a_test").warning("look %s", "out")
    logging.getLogger("torch.of_a_test").info("by the way")
    sys.stdout.write("to stdout\n")
    sys.stderr.write("to stderr\n")


def test_it_is_told_at_the_end_where_nothing_fails(logged, capsys):
    with hold_back_torch_messages():
        speak()
        assert not logged.getvalue()
    assert logged.getvalue() == "look out\n"
    assert capsys.readouterr() == ("to stdout\n", "to stderr\n")
    logging.getLogger("torch.of_a_test").warning("as before")
    assert logged.getvalue() == "look out\nas before\n"


def test_it_is_a_note_of_what_is_raised(logged, capsys):
    def fail():
        with hold_back_torch_messages():
            speak()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as caught:
        fail()
    assert caught.value.__notes__ == ["look out\nto stdout\nto stderr"]
    assert capsys.readouterr() == ("", "")
    logging.getLogger("torch.of_a_test").warning("as before")
    assert logged.getvalue() == "as before\n"


NETWORK = """
import torch

class Misfit(torch.nn.Module):
    def forward(self, x):
        return torch.ones(4, 5) @ x

def make():
    return Misfit(), (torch.zeros(4, 8),)
"""


def test_torch_s_own_traceback_follows_our_sentence(tmp_path, capfd):
    (tmp_path / "net.py").write_text(NETWORK)
    with pytest.raises(ConfigError, match="torch cannot export the network of") as caught:
        export_source(f"{tmp_path / 'net.py'}:make")
    assert capfd.readouterr() == ("", "")
    shown = "".join(traceback.format_exception(caught.value))
    assert "failed while attempting to run meta for aten.mm" in shown
