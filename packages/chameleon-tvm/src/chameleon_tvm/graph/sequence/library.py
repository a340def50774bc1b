"""A call sequence and its kernels in one shared library."""

from __future__ import annotations

import subprocess
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
from chameleon_core.errors import ChameleonError

from chameleon_tvm.graph.load import WEIGHTS
from chameleon_tvm.graph.sequence.calls import CallSequence
from chameleon_tvm.graph.sequence.plan import Plan, planned
from chameleon_tvm.graph.sequence.source import tables
from chameleon_tvm.graph.sequence.weights import write_weights

OBJECTS = "objects.tar"
"""Name of the file beside a library that holds what it was linked of.

Whoever links these objects again, with another run time for instance, gets the same machine code.
"""
_FLAGS = ("-x", "c", "-std=gnu11", "-O2", "-fPIC", "-Wall", "-c")


@attrs.frozen(kw_only=True, eq=False)
class SequenceExecutable:
    """What ``relax.Executable`` is to the virtual machine.

    Attributes:
        kernels: the compiled functions that the calls name.
        sequence: the calls.
        merged: whether constants of the same bytes are one in the file of weights.
    """

    kernels: Any
    sequence: CallSequence
    merged: bool = True

    def export_library(self, file_name: str) -> None:
        """Link kernels and the sequence of calls into a library; weights get a file beside it.

        So do the objects that it is linked of. Linkers need seconds for hundreds of megabytes, and
        several libraries may share weights.

        Args:
            file_name: of the library, which TVM's runtime loads.

        Raises:
            ChameleonError: the C compiler fails.
        """
        plan = planned(self.sequence, merged=self.merged)
        with tempfile.TemporaryDirectory(prefix="chameleon-sequence-") as folder:
            made = _object(self.sequence, plan, Path(folder))
            self.kernels.export_library(file_name, fcompile=_linked, addons=[str(made)])
        write_weights(plan.blobs, Path(file_name).with_name(WEIGHTS))


def _linked(file_name: str, objects: Sequence[str], **options: Any) -> None:
    """Link objects into a library as TVM does, and keep them."""
    from tvm.support.cc import create_shared  # noqa: PLC0415 - needed for linking alone

    create_shared(file_name, objects, **options)
    with tarfile.open(Path(file_name).with_name(OBJECTS), "w") as archive:
        for number, one in enumerate(objects):
            archive.add(one, arcname=f"{number}{Path(one).suffix}")


def _object(sequence: CallSequence, plan: Plan, folder: Path) -> Path:
    """The object file of what is around the kernels."""
    from tvm.support.cc import get_cc  # noqa: PLC0415 - needed for linking alone
    from tvm_ffi.libinfo import include_paths  # noqa: PLC0415

    made = folder / "sequence.o"
    (folder / "tables.h").write_text(tables(sequence, plan), encoding="utf-8")
    headers = [str(folder), *map(str, include_paths())]
    command = [
        *(get_cc() or "cc").split(),
        *(f"-I{header}" for header in headers),
        *_FLAGS,
        str(Path(__file__).with_name("run.c")),
        *("-o", str(made)),
    ]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    if finished.returncode:
        raise ChameleonError(
            f"the C compiler cannot translate the network's calls: {finished.stderr[-400:]}",
            hint=f"It was called as {' '.join(command)}; CC names another one.",
        )
    return made
