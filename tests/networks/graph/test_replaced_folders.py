"""A delivered folder takes an older one's place whole, whenever the process is killed."""

import os
import shutil
import signal
import sys

import pytest
from chameleon_networks._delivery.deliver import replace
from chameleon_system import _files as files

NAMES = ("network.so", "weights.bin", "part/weights.bin")


def _written(folder, text):
    for name in NAMES:
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return folder


def _texts(folder):
    return {(folder / name).read_text() for name in NAMES}


def test_weights_are_not_copied_and_readers_keep_theirs(tmp_path):
    old, staged = _written(tmp_path / "network", "old"), _written(tmp_path / "staged", "new")
    with (old / "weights.bin").open() as reader:
        replace(staged, old)
        assert reader.read() == "old"
    assert _texts(old) == _texts(staged) == {"new"}
    for name in NAMES:
        assert (old / name).samefile(staged / name) == name.endswith("weights.bin")
    assert {entry.name for entry in tmp_path.iterdir()} == {"network", "staged"}


def _killed_at(event, staged, folder):
    """Replace a folder in a child process that is killed at an event of the system's."""
    child = os.fork()
    if child == 0:
        events = 0

        def count(name, _):
            nonlocal events
            if name.startswith(("os.", "open", "shutil.", "ctypes.")):
                events += 1
            if events == event:
                os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(count)
        replace(staged, folder)
        os._exit(0)
    return os.waitpid(child, 0)[1] != 0


@pytest.mark.full
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@pytest.mark.parametrize("exchanging", [True, False])
def test_a_killed_process_leaves_the_old_folder_or_the_new_one(tmp_path, monkeypatch, exchanging):
    if not exchanging:
        monkeypatch.setattr(files, "_exchange", lambda *_: False)
    folder, staged = tmp_path / "network", _written(tmp_path / "staged", "new")
    event, missing = 0, 0
    seen = set()
    killed = True
    while killed:
        event += 1
        shutil.rmtree(folder, ignore_errors=True)
        _written(folder, "old")
        killed = _killed_at(event, staged, folder)
        if folder.exists():
            assert _texts(folder) in ({"old"}, {"new"})
            seen |= _texts(folder)
        else:
            missing += 1
            assert _texts(tmp_path / ".network.old") == {"old"}
        replace(staged, folder)
        assert _texts(folder) == {"new"}
        assert {entry.name for entry in tmp_path.iterdir()} == {"network", "staged"}
    assert seen == {"old", "new"}
    assert missing == (0 if exchanging else 1)
    assert event > 20
