"""Ctrl-C while a network is compiled and verified: an end at once, and nothing lost."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from programs import completed

CLI = [sys.executable, "-m", "chameleon_cli"]


def _children(process):
    """Processes whose parent is this one."""
    children = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = status.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended in the meantime
            continue
        if int(words[1]) == process:
            children.append(int(status.parent.name))
    return children


@pytest.mark.long
def test_interrupted_while_the_network_is_compiled(tmp_path):
    pipeline = {
        "model": {"builtin": {"network": "resnet_small", "compare": False}},
        "target": "native",
        "baselines": [],
        "budget": {"measurements": 8, "batch_size": 2, "scope": "network"},
        "output": str(tmp_path / "run"),
    }
    (tmp_path / "p.yaml").write_text(json.dumps(pipeline))
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    process = subprocess.Popen(
        [*CLI, "-v", "run", str(tmp_path / "p.yaml")],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "TMPDIR": str(scratch)},
    )
    assert process.stderr is not None
    text = ""
    for line in process.stderr:
        text += line
        if "compiling_network" in line:
            break
    children = _children(process.pid)
    assert children, "the reference has a process of its own"
    process.send_signal(signal.SIGINT)
    text += process.communicate(timeout=240)[1]
    assert process.returncode == 130, text
    assert "continue with: chameleon run" in text
    assert not any(Path(f"/proc/{child}").exists() for child in children)
    assert not list(scratch.glob("chameleon-*"))
    assert not (tmp_path / "run" / "network").exists()
    completed([*CLI, "compile", tmp_path / "run"], timeout=800)
    assert (tmp_path / "run" / "network" / "network.so").exists()
