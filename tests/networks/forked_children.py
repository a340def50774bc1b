"""Children that run networks, forked from one process that has imported what they import.

Whoever starts a child imports TVM, and often torch, anew: seconds for a network that computes for
microseconds. These are processes like the others, with pipes, a session, signals, and an end of
their own; what they skip is the start of Python and the imports.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import importlib.util
import json
import os
import runpy
import socket
import subprocess
import sys
import time
from typing import Any

from chameleon_system._imports import pause_garbage_collection
from chameleon_system._processes.child import ChildProcess, LogTail
from chameleon_system._processes.death_signal import die_with_parent, ignore_terminal
from chameleon_system._processes.stamps import TOKEN, child_token

_PR_SET_CHILD_SUBREAPER = 36
_LONGEST = 1 << 16
_IMPORTED = (
    # First, since it imports TVM without torch.
    "chameleon_tvm._quick_tvm",
    "chameleon_networks._compile.compile",
    "chameleon_networks._artifact.load",
    "chameleon_networks._evaluation.worker",
    "chameleon_networks._checks.worker",
    "chameleon_networks._importers.sources",
    "chameleon_networks._quantize.simulation_process",
    "chameleon_networks._quantize.simulated_network",
    "chameleon_tvm._rivals.timing",
    "onnxruntime",
    "torch",
)


class ForkedChild(ChildProcess):
    """A ``ChildProcess`` that is forked, and a child of this process as the others are."""

    def __init__(self, server, module, arguments=(), *, environment=None, stdin, stdout):
        assert stdin == stdout == subprocess.PIPE
        self.token = child_token()
        read_log, write_log = os.pipe()
        read_stdin, write_stdin = os.pipe()
        read_stdout, write_stdout = os.pipe()
        request = {
            "module": module,
            "arguments": list(arguments),
            "environment": {**(environment or os.environ), TOKEN: self.token},
        }
        theirs = (read_stdin, write_stdout, write_log)
        pid = server.forked(request, theirs)
        for descriptor in theirs:
            os.close(descriptor)
        # As much of ``subprocess.Popen`` as there is need of.
        self._process: Any = _Forked(
            pid, os.fdopen(write_stdin, "wb", 0), os.fdopen(read_stdout, "rb", 0)
        )
        self._log = LogTail(read_log)


class _Forked:
    """What a ``ChildProcess`` uses of ``subprocess.Popen``."""

    def __init__(self, pid, stdin, stdout):
        self.pid, self.stdin, self.stdout = pid, stdin, stdout
        self.returncode: int | None = None

    def wait(self):
        if self.returncode is None:
            _, status = os.waitpid(self.pid, 0)
            self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode


class ForkServer:
    """The process that forks; it ends when this one does, since nobody can ask it any more."""

    def __init__(self):
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # Threads would not survive the fork; each child starts its own.
        single = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, __file__],
                stdin=theirs,
                stdout=subprocess.DEVNULL,
                env={**os.environ, **single, "PYTHONPATH": os.pathsep.join(sys.path)},
                start_new_session=True,
            )

    def close(self):
        self._socket.close()
        self._process.wait()

    def forked(self, request, descriptors):
        """The id of a new child of this process, which has its ``descriptors`` 0, 1, and 2."""
        message = json.dumps({**request, "parent": os.getpid()}).encode()
        assert len(message) < _LONGEST
        # The child's parent ends at once; what takes its place is this process.
        with _adopting():
            socket.send_fds(self._socket, [message], list(descriptors))
            answer = self._socket.recv(_LONGEST)
        assert answer, "the process that forks has ended"
        return int(answer)


@contextlib.contextmanager
def _adopting():
    prctl = ctypes.CDLL(None).prctl
    prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def _serve():
    """Fork at every request until there is nobody to ask."""
    connection = socket.socket(fileno=0)
    with pause_garbage_collection():
        for name in _IMPORTED:
            if importlib.util.find_spec(name.partition(".")[0]) is not None:
                importlib.import_module(name)
    gc.freeze()  # no child searches for garbage among what was imported, nor copies its pages
    while True:
        message, descriptors, *_ = socket.recv_fds(connection, _LONGEST, 3)
        if not message:
            return
        request = json.loads(message)
        read, write = os.pipe()
        between = os.fork()
        if not between:
            child = os.fork()
            if not child:
                _become(request, descriptors)
            os.write(write, str(child).encode())
            os._exit(0)
        os.waitpid(between, 0)
        for descriptor in (*descriptors, write):
            os.close(descriptor)
        connection.send(os.read(read, 32))
        os.close(read)


def _become(request, descriptors):
    """Do as ``chameleon_system._processes.launcher`` does, as a child of who asked for it."""
    status = 1
    try:
        os.setsid()
        for number, descriptor in enumerate(descriptors):
            os.dup2(descriptor, number)
            os.close(descriptor)
        os.environ.clear()
        os.environ.update(request["environment"])
        while os.getppid() != request["parent"]:
            time.sleep(0.001)
        die_with_parent(request["parent"])
        ignore_terminal()
        module = request["module"]
        # Run anew, as in a process that has not imported it.
        sys.modules.pop(module, None)
        sys.argv = [module, *request["arguments"]]
        sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        status = 0
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException as error:  # noqa: BLE001 - the last words of a child are its log
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    _serve()
