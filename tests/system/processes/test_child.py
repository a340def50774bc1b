"""Children end when they are told to, when their parent ends, and with all they started."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import psutil
import pytest
from chameleon_system._processes import child as child_module
from chameleon_system._processes.child import ChildProcess, LogTail, describe_status, spawn
from chameleon_system._processes.conversation import ChildEndedError, Conversation

_PROGRAM = """
    import json, os, signal, subprocess, sys, time
    print("hello", *sys.argv[1:], file=sys.stderr, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        if "exit" in request:
            sys.exit(request["exit"])
        if "start" in request:
            away = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"],
                                    start_new_session=True)
            print(json.dumps({"pid": away.pid}), flush=True)
        elif "deaf" in request:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            print("{}", flush=True)
        elif "hang" in request:
            time.sleep(600)
        else:
            print(json.dumps({"name": __name__, **request}), flush=True)
"""


@pytest.fixture
def start(tmp_path):
    """Starts a child that runs the program above."""
    (tmp_path / "a_program.py").write_text(textwrap.dedent(_PROGRAM))
    started = []

    def make(*arguments):
        path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
        started.append(
            ChildProcess(
                "a_program",
                arguments,
                environment={**os.environ, "PYTHONPATH": path},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
        )
        return started[-1]

    yield make
    for child in started:
        child.kill()


def gone(pid):
    """Waits until a process has ended, whoever its parent is."""
    for _ in range(4800):
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.05)
    return False


def logged(child, text):
    """Waits until a text is all that a child has printed: another thread reads it."""
    for _ in range(4800):
        if child.log == text:
            return True
        time.sleep(0.05)
    return False


def test_a_conversation(start):
    child = start("one", "two")
    conversation = Conversation(child)
    for number in range(3):
        conversation.tell({"number": number})
    assert [conversation.answer(240) for _ in range(3)] == [
        {"name": "__main__", "number": number} for number in range(3)
    ]
    assert child.alive
    assert logged(child, "hello one two")
    child.clear_log()
    assert child.log == ""


def test_no_answer_in_time(start):
    child = start()
    conversation = Conversation(child)
    conversation.tell({"hang": 1})
    with pytest.raises(TimeoutError):
        conversation.answer(0.1)
    assert child.kill() == -signal.SIGKILL


def test_one_that_ends_keeps_its_status(start):
    child = start()
    conversation = Conversation(child)
    conversation.tell({"exit": 3})
    with pytest.raises(ChildEndedError):
        conversation.answer(240)
    assert child.reap(240) == 3
    assert child.kill() == 3
    assert not child.alive
    with pytest.raises(ChildEndedError):
        conversation.tell({})
    with pytest.raises(ChildEndedError):
        conversation.answer(240)
    child.signal(signal.SIGCONT)


def test_what_it_started_ends_with_it(start):
    child = start()
    conversation = Conversation(child)
    conversation.tell({"start": 1})
    away = conversation.answer(240)["pid"]
    # It is in a session of its own, and its parent is about to be gone.
    conversation.tell({"exit": 0})
    assert child.wait(240)
    assert psutil.pid_exists(away)
    assert child.kill() == 0
    assert gone(away)


def test_an_orderly_end_and_a_forced_one(start):
    obedient = start()
    Conversation(obedient).tell({})
    Conversation(obedient).answer(240)
    assert obedient.stop(240) == -signal.SIGTERM
    deaf = start()
    conversation = Conversation(deaf)
    conversation.tell({"deaf": 1})
    conversation.answer(240)
    assert deaf.stop(0.05) == -signal.SIGKILL


def test_a_stopped_one_is_killed(start):
    child = start()
    child.signal(signal.SIGSTOP)
    assert not child.wait(0.01)
    assert child.kill() == -signal.SIGKILL


def test_it_outlives_the_thread_that_started_it(start):
    children = []
    thread = threading.Thread(target=lambda: children.append(start()))
    thread.start()
    thread.join()
    conversation = Conversation(children[0])
    conversation.tell({"number": 1})
    assert conversation.answer(240)["number"] == 1


_PARENT = """
    import sys
    from chameleon_system._processes.child import ChildProcess
    child = ChildProcess("timeit", ["-n1", "-r1", "import time; time.sleep(600)"])
    print(child.pid, flush=True)
    sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a death signal")
def test_none_outlives_a_killed_parent():
    # The child does not look at its pipes: it may compile, or import, for minutes.
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(_PARENT)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as parent:
        child = int(parent.stdout.readline())
        assert psutil.pid_exists(child)
        parent.kill()
    assert gone(child)


def test_a_process_that_nobody_waits_for_any_more_is_ended(monkeypatch):
    started = []
    go_on = threading.Event()

    def slowly():
        go_on.wait(240)
        started.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]))
        return started[-1]

    class Interrupted(BaseException):
        pass

    def interrupt(*_):
        raise Interrupted

    monkeypatch.setattr("concurrent.futures.Future.result", interrupt)
    with pytest.raises(Interrupted):
        spawn(slowly)
    monkeypatch.undo()
    go_on.set()
    spawn(lambda: subprocess.Popen([sys.executable, "-c", ""])).wait()
    assert gone(started[0].pid)


def test_one_that_cannot_be_started(monkeypatch):
    before = len(list(Path("/proc/self/fd").iterdir()))
    monkeypatch.setattr(child_module.sys, "executable", "/nowhere/python")
    with pytest.raises(FileNotFoundError):
        ChildProcess("timeit")
    assert len(list(Path("/proc/self/fd").iterdir())) <= before


@pytest.mark.parametrize(
    ("status", "words"), [(0, "status 0"), (3, "status 3"), (-9, "SIGKILL"), (-250, "250")]
)
def test_how_it_ended_in_words(status, words):
    assert describe_status(status) == words


def test_the_log_keeps_its_end():
    read, write = os.pipe()
    log = LogTail(read, limit=100)
    os.write(write, b"start\n" + b"x" * 5000 + b"\x00end")
    os.close(write)
    log.join(240.0)
    assert log.text.endswith("xend")
    assert len(log.text) <= 100


@pytest.mark.full
@pytest.mark.skipif(not Path("/proc/self/autogroup").exists(), reason="the kernel has no sessions")
def test_an_idle_child_gives_way_to_other_sessions_and_so_do_its_children(tmp_path, monkeypatch):
    (tmp_path / "looks.py").write_text(
        "import os, sys\n"
        "print(os.sched_getscheduler(0), *open('/proc/self/autogroup').read().split()[1:])\n"
        "if len(sys.argv) == 1:\n"
        "    from chameleon_system._processes.child import ChildProcess\n"
        "    with ChildProcess('looks', ['child']) as child:\n"
        "        child.reap(600)\n"
        "    print(child.log.strip())\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    with ChildProcess("looks", idle=True) as child:
        child.reap(600)
    assert child.log.splitlines() == [f"{os.SCHED_IDLE} nice 19"] * 2
