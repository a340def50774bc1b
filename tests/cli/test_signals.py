"""Signals while the main thread does not listen to them."""

import signal
import subprocess
import sys
import threading

import pytest
from chameleon_cli._signals import signals
from chameleon_core._errors import ExitCode
from chameleon_core._loop.interruption import Interruption

# The main thread is in a C function that no signal ends, as in a compiler.
DEAF = """
import ctypes
import signal
from chameleon_cli._signals import signals
from chameleon_core._loop.interruption import Interruption

with signals(Interruption()):
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    print("ready", flush=True)
    ctypes.CDLL(None).sleep(600)
"""


def test_the_second_signal_ends_a_process_amid_foreign_code():
    process = subprocess.Popen([sys.executable, "-c", DEAF], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(timeout=0.3)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=240) == ExitCode.INTERRUPTED
    process.stdout.close()


@pytest.mark.parametrize("handler", [signal.SIG_DFL, signal.SIG_IGN])
def test_a_closed_terminal_stops_a_run_unless_it_is_to_outlive_it(handler):
    interruption, before = Interruption(), signal.signal(signal.SIGHUP, handler)
    try:
        with signals(interruption):
            signal.raise_signal(signal.SIGHUP)
            signal.raise_signal(signal.SIGHUP)  # the kernel's, after the shell's
    finally:
        signal.signal(signal.SIGHUP, before)
    assert interruption.requested is (handler is signal.SIG_DFL)


def test_nothing_is_left_of_listening():
    before = signal.getsignal(signal.SIGINT)
    for _ in range(3):
        with signals(Interruption()):
            assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before
    assert signal.set_wakeup_fd(-1) == -1
    for thread in threading.enumerate():
        if thread.name == "signals":
            thread.join(timeout=240)
            assert not thread.is_alive()
