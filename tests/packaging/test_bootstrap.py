"""The set-up says in a few lines how far it is, and keeps what pip said for when it fails."""

import importlib.util
import sys

import pytest

PIP = """#!{python}
import sys
assert sys.argv[1:4] == ["-m", "pip", "install"], sys.argv
for number in range(100):
    print(f"Collecting package{{number}}>=1")
    print(f"  Downloading package{{number}}-1.{{number}}-py3-none-any.whl ({{number}} kB)")
for number in range(9):
    print(f"Downloading nvidia_part{{number}}-1.0-cp311.whl ({{number + 1}}57.5 MB)")
print("Building wheels for collected packages: package1")
print("Installing collected packages: package1, package2")
print("WARNING: a word of pip", file=sys.stderr)
sys.exit({code})
"""


@pytest.fixture
def bootstrap(root, tmp_path, monkeypatch):
    """The script with an environment whose Python is a stand-in for pip."""
    spec = importlib.util.spec_from_file_location("bootstrap_of_a_test", root / "bootstrap.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "ENVIRONMENT", tmp_path)
    monkeypatch.setattr(module, "BIN", tmp_path)

    def prepare(code):
        python = tmp_path / "python"
        python.write_text(PIP.format(python=sys.executable, code=code))
        python.chmod(0o755)
        return module

    return prepare


def test_an_installation_is_told_in_ten_lines_and_logged_in_full(bootstrap, capfd, tmp_path):
    bootstrap(0).install("run", "-e", "somewhere")
    out, err = capfd.readouterr()
    assert not out
    lines = err.splitlines()
    assert len(lines) <= 10
    assert lines[0] == "Installing what is needed to run ..."
    assert lines[1:3] == ["  finding out what that is", "  downloading"]
    assert lines[3] == "  ... nvidia_part0, 158 MB, after 5 MB"
    assert lines[4] == "  ... nvidia_part1, 258 MB, after 162 MB"
    assert lines[-2:] == ["  building", "  unpacking"]
    log = (tmp_path / "installing-run.log").read_text()
    assert log.count("Collecting") == 100
    assert "a word of pip" in log
    bootstrap(1).install("run", "-e", "somewhere")  # nothing has changed: pip is not called
    assert capfd.readouterr() == ("", "")


def test_a_failure_shows_pip_s_last_lines_and_names_the_log(bootstrap, capfd, tmp_path):
    with pytest.raises(SystemExit) as caught:
        bootstrap(3).install("test", "nox")
    log = tmp_path / "installing-test.log"
    assert f"The whole log is {log}." in caught.value.code
    assert "a word of pip" in caught.value.code
    assert len(caught.value.code.splitlines()) < 20
    assert not (tmp_path / ".installed-test").exists(), "the next call tries again"
    capfd.readouterr()
