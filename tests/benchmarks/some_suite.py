"""A suite whose cases end in every way that there is."""

import contextlib
import os
import time

from case_suite import RefusedError, Suite, WrongAnswerError


class SomeSuite(Suite):
    """Cases by the way that they end."""

    def cases(self):
        return {"right": "good", "remark": "good", **dict.fromkeys(_BAD, "bad")}

    def run(self, case):
        return _BAD[case]() if case in _BAD else {"remark": "with a remark"}.get(case)


def _wrong():
    raise WrongAnswerError("output 0 differs")


def _refused():
    raise RefusedError("input 'x' is 3 numbers")


def _garble():
    for pipe in range(3, 32):
        with contextlib.suppress(OSError):
            os.write(pipe, b"no JSON\n")


_BAD = {
    "wrong": _wrong,
    "refused": _refused,
    "error": lambda: 1 / 0,
    "crashed": os.abort,
    "garbled": _garble,
    "late": lambda: time.sleep(600),
}
