"""Loads a network in a process to which the system refuses AMX, as sandboxes do.

``python refused.py FOLDER INPUTS OUTPUTS`` reads and writes NumPy's files, and prints why kernels
with vectors run.
"""

import ctypes
import errno
import runpy
import struct
import sys

_ARCH_PRCTL, _REQUEST = 158, 0x1023
_NO_NEW_PRIVILEGES, _SECCOMP, _FILTER = 38, 22, 2
_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06
_NUMBER, _FIRST_ARGUMENT = 0, 16
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000


class _Program(ctypes.Structure):
    _fields_ = (("count", ctypes.c_ushort), ("rows", ctypes.c_void_p))


def refuse():
    """Let the system refuse AMX to this process from now on (Linux's seccomp(2))."""
    rows = (
        (_LOAD, 0, 0, _NUMBER),
        (_EQUAL, 0, 3, _ARCH_PRCTL),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (_EQUAL, 0, 1, _REQUEST),
        (_RETURN, 0, 0, _ERROR | errno.EPERM),
        (_RETURN, 0, 0, _ALLOW),
    )
    text = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *row) for row in rows))
    program = _Program(len(rows), ctypes.addressof(text))
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    for words in ((_NO_NEW_PRIVILEGES, 1, 0), (_SECCOMP, _FILTER, ctypes.byref(program))):
        assert prctl(*words, 0, 0) == 0, errno.errorcode[ctypes.get_errno()]


def main(folder, inputs, outputs):
    refuse()
    import numpy as np  # noqa: PLC0415 - after the refusal, as in a sandbox

    network = runpy.run_path(f"{folder}/load.py")["load"]()
    np.save(outputs, network(np.load(inputs)))
    sys.stdout.write(getattr(network, "vectors", ""))


if __name__ == "__main__":
    main(*sys.argv[1:])
