"""The page of a run is served while it goes on, to this machine alone, and nothing is written."""

import contextlib
import http.client
import json
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys

import pytest
from chameleon_bench._pages.run_page import page_of
from chameleon_bench._pages.run_record import run_record
from chameleon_bench._runs import live_page
from chameleon_bench._runs.live_page import LiveRun, PageServer
from chameleon_cli._main import run as command_line
from chameleon_core._errors import ExitCode, TargetError
from chameleon_core._loop.run import run_pipeline
from chameleon_core._run_folder import RunFolder
from chameleon_core.plugin_api import hookimpl

VERSION = re.compile(r'data-version="([^"]*)"')


class Clock:
    """Seconds that only a test lets go by."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def copy(few, tmp_path):
    """A finished run that a test may change."""
    return shutil.copytree(few, tmp_path / "few")


@pytest.fixture
def served(copy):
    """A server of ``copy``, and a function that asks it."""
    with PageServer(LiveRun(copy)) as server:
        yield server


def ask(server, path="/", method="GET", **headers):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=240)
    with contextlib.closing(connection):
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read().decode()


def test_it_serves_the_page_of_the_report_with_what_follows_it(served, copy):
    status, headers, text = ask(served)
    assert status == 200
    assert headers["Content-Type"] == "text/html; charset=utf-8"
    assert headers["Cache-Control"] == "no-store"
    page, _, tail = str(page_of(run_record(copy))).rpartition("</body>")
    assert text.startswith(page)
    assert text.endswith(f"</body>{tail}")
    assert text.count('id="chameleon-follow"') == 1
    document = json.loads(ask(served, "/state")[2])
    assert document["sentence"] == "the run has ended: finished"
    assert document["ended"]
    assert VERSION.search(text)[1] == document["version"]


def test_head_answers_without_a_body(served):
    status, headers, text = ask(served, method="HEAD")
    assert (status, text) == (200, "")
    assert int(headers["Content-Length"]) == len(ask(served)[2].encode())


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
def test_only_get_and_head_are_allowed(served, method):
    status, headers, text = ask(served, method=method)
    assert (status, headers["Allow"], text) == (405, "GET, HEAD", "only GET and HEAD\n")


@pytest.mark.parametrize("path", ["/records.sqlite", "/../few/pipeline.yaml", "/state/x"])
def test_nothing_else_is_served(served, path):
    assert ask(served, path)[0] == 404


@pytest.mark.parametrize("name", ["evil.example", "evil.example:{port}", "127.0.0.1", "", "[::1]"])
def test_another_name_in_the_header_host_is_refused(served, name):
    for path in ("/", "/state"):
        status, _, text = ask(served, path, Host=name.format(port=served.port))
        assert status == 421
        assert "few" not in text


def test_this_machine_s_names_are_answered(served):
    for name in ("127.0.0.1", "localhost", "LOCALHOST"):
        assert ask(served, "/state", Host=f"{name}:{served.port}")[0] == 200


def test_two_hosts_or_none_are_refused(served):
    for lines in (b"Host: localhost:%d\r\nHost: evil\r\n" % served.port, b""):
        with socket.create_connection(("127.0.0.1", served.port), timeout=240) as row:
            row.sendall(b"GET / HTTP/1.1\r\n" + lines + b"\r\n")
            assert row.recv(64).startswith(b"HTTP/1.0 421 ")


def test_it_listens_on_loopback_alone(served):
    assert served.url == f"http://127.0.0.1:{served.port}/"
    assert served._server.socket.getsockname()[0] == "127.0.0.1"


def test_a_taken_port_is_one_sentence(served, copy, capsys):
    with pytest.raises(TargetError, match="another program listens on it"):
        PageServer(LiveRun(copy), port=served.port)
    assert command_line(["watch", str(copy), "--port", str(served.port)]) == ExitCode.DEVICE
    error, hint = capsys.readouterr().err.splitlines()
    assert error.startswith(f"error: cannot serve on port {served.port} of 127.0.0.1: another")
    assert "--port 0" in hint


def test_looking_writes_nothing_and_holds_no_lock(copy):
    (copy / "report.html").unlink()
    records = copy / "records.sqlite"
    # A run that goes on has a log that is not yet part of the file.
    with contextlib.closing(sqlite3.connect(records, isolation_level=None, timeout=0)) as writer:
        writer.execute("UPDATE facts SET value = '9.5' WHERE name = 'seconds'")
        before = {file: file.read_bytes() for file in copy.rglob("*") if "-shm" not in file.name}
        with PageServer(LiveRun(copy)) as server:
            assert "9.5 s" in ask(server)[2]
            ask(server, "/state")
            after = {file: file.read_bytes() for file in copy.rglob("*") if "-shm" not in file.name}
            assert after == before
            (busy, *_) = writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            assert not busy
            writer.execute("BEGIN EXCLUSIVE")
            writer.execute("ROLLBACK")
            # The next process of the run finds its folder free.
            RunFolder(copy).close()


class Visitor:
    """Looks at the page of a run after each of its batches."""

    def __init__(self, server):
        self._server = server
        self.told = []

    @hookimpl
    def chameleon_batch_measured(self, event):
        state = json.loads(ask(self._server, "/state")[2])
        measured = re.search(r"(\d+) measurements", ask(self._server)[2])
        self.told.append((state["state"], int(measured[1])))


def test_the_page_grows_with_the_run(pipeline, monkeypatch):
    monkeypatch.setattr(live_page, "_LOOK_SECONDS", 0.0)
    monkeypatch.setattr(live_page, "_SHARE", float("inf"))
    resolved = pipeline(operators=[[7, 9]])
    live = LiveRun(resolved.output)
    with PageServer(live) as server:
        visitor = Visitor(server)
        run_pipeline(resolved, listeners=[visitor])
        assert visitor.told == [("running", count) for count in (4, 8, 12, 16, 20)]
        assert json.loads(ask(server, "/state")[2])["state"] == "finished"
        assert ": finished" in ask(server)[2]


def test_pages_take_a_small_share_of_the_machine_until_the_run_has_ended(copy, monkeypatch):
    clock, pages = Clock(), []

    def slow_page(_record):
        clock.now += 1.0
        pages.append(len(pages))
        return f"<html><body>page {len(pages)}</body></html>"

    monkeypatch.setattr(live_page, "page_of", slow_page)
    live = LiveRun(copy, clock=clock)
    with RunFolder(copy):
        first = live.version()
        assert "page 1" in live.page()
        with (copy / "events.jsonl").open("a") as log:
            log.write("{}\n")
        clock.now += 1.0
        assert live.look().version != first
        assert live.version() == first, "a browser is not told to come back too early"
        assert "page 1" in live.page()
        clock.now += 20.0
        assert live.version() != first
        assert "page 2" in live.page()
        assert VERSION.search(live.page())[1] == live.version()
        with (copy / "events.jsonl").open("a") as log:
            log.write("{}\n")
        clock.now += 1.0
        assert "page 2" in live.page()
    clock.now += 1.0
    assert "page 3" in live.page(), "kernels are timed no more"


def test_a_run_that_cannot_be_read_is_said_and_looked_at_again(copy, monkeypatch):
    monkeypatch.setattr(live_page, "_LOOK_SECONDS", 0.0)
    monkeypatch.setattr(live_page, "_SHARE", float("inf"))
    aside = copy / "aside"
    (copy / "records.sqlite").rename(aside)
    live = LiveRun(copy)
    page = live.page()
    assert "is no run folder" in page
    assert live.look().state == "unreadable"
    assert not live.look().ended
    aside.rename(copy / "records.sqlite")
    assert VERSION.search(page)[1] != live.version()
    assert ": finished" in live.page()


def test_a_page_that_cannot_be_made_says_so_and_follows_on(copy, monkeypatch):
    def broken(_record):
        raise KeyError("<spread>")

    monkeypatch.setattr(live_page, "page_of", broken)
    page = LiveRun(copy).page()
    assert "the page cannot be made: KeyError: &#x27;&lt;spread&gt;&#x27;" in page
    assert 'id="chameleon-follow"' in page


def test_no_run_is_a_sentence(tmp_path, capsys):
    assert command_line(["watch", str(tmp_path)]) == ExitCode.USAGE
    assert "is no run folder" in capsys.readouterr().err


def test_ctrl_c_ends_the_command(copy):
    # Shells have what they run in the background ignore SIGINT, tests perhaps among it, and a new
    # process ignores what this one does.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "chameleon_cli", "watch", str(copy), "--json"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
    finally:
        signal.signal(signal.SIGINT, before)
    document = json.loads(process.stdout.readline())
    assert document["state"] == "finished"
    connection = http.client.HTTPConnection(document["url"].split("/")[2], timeout=240)
    connection.request("GET", "/state")
    assert connection.getresponse().status == 200
    assert process.stderr.readline() == "the run has ended: finished\n"
    process.send_signal(signal.SIGINT)
    _, rest = process.communicate(timeout=240)
    assert (process.returncode, rest.strip()) == (ExitCode.INTERRUPTED, "interrupted")
