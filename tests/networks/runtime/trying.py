"""Answers each line of standard input: what a folder's own loader makes of the folder.

A child process tries it, so that a crash is an answer as well.
"""

import json
import os
import runpy
import sys
from pathlib import Path

import numpy as np


def tried(request):
    """``right``, ``wrong``, or an error.

    Args:
        request: ``folder``, ``samples`` of inputs and outputs, and ``pack`` for an operator whose
            weights are to be packed.
    """
    try:
        folder = Path(request["folder"])
        with np.load(request["samples"]) as samples:
            arrays = [samples[name] for name in samples.files]
        if request["pack"]:
            *constants, wanted = arrays
            pack = runpy.run_path(str(folder / "pack.py"))["pack_weights"]
            return _verdict([pack(*constants, folder=folder)], [wanted])
        network = runpy.run_path(str(folder / "load.py"))["load"](folder)
        verdicts = [
            _verdict([network(data)], [wanted])
            for data, wanted in zip(arrays[::2], arrays[1::2], strict=True)
        ]
        return max(verdicts)  # alphabetically
    except BaseException as error:  # noqa: BLE001 - the answer
        return f"{type(error).__name__}: {error}"


def _verdict(outputs, wanted):
    same = all(got.tobytes() == want.tobytes() for got, want in zip(outputs, wanted, strict=True))
    return "right" if same else "wrong"


def main():
    """Answer until standard input ends."""
    if "tvm" in sys.argv:
        import tvm  # noqa: F401, PLC0415 - once instead of in each child
    for line in sys.stdin:
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(read)
            os.write(write, tried(json.loads(line)).encode(errors="replace")[:2000])
            os._exit(0)
        os.close(write)
        with open(read, "rb") as stream:  # noqa: PTH123 - a descriptor
            said = stream.read().decode(errors="replace")
        _, status = os.waitpid(child, 0)
        sys.stdout.write(json.dumps(f"status {status}" if status else said) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
