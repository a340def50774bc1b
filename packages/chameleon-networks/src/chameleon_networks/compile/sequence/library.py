"""A call sequence and its kernels as objects and weights, of which a library is linked."""

from __future__ import annotations

import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from chameleon_networks.compile.sequence.calls import CallSequence
from chameleon_networks.compile.sequence.plan import planned
from chameleon_networks.compile.sequence.source import tables
from chameleon_networks.compile.sequence.weights import WEIGHTS, checksums, write_weights
from chameleon_networks.runtime.linking import OBJECTS, SOURCES, compile_c


@attrs.frozen(kw_only=True, eq=False)
class SequenceExecutable:
    """What ``relax.Executable`` is to the virtual machine.

    Attributes:
        kernels: the compiled functions that the calls name.
        sequence: the calls.
        loops: extents of each function's parallel loops, by its symbol.
        layout: of an operator's weights, which users pack; 0 if all weights are constants.
    """

    kernels: Any
    sequence: CallSequence
    loops: Mapping[str, Sequence[int]]
    layout: int = 0

    def export_library(self, file_name: str) -> None:
        """Write what ``link_library`` links of: objects and a file of weights in the same folder.

        Linkers need seconds for hundreds of megabytes, and several libraries may share weights.

        Args:
            file_name: of the library.

        Raises:
            ChameleonError: the C compiler fails.
        """
        own = bool(self.layout)
        # Whoever packs weights knows nothing of constants that happen to be equal.
        plan = planned(self.sequence, merged=not own)
        sums = [0] * len(plan.blobs) if own else checksums(plan.blobs)
        text = tables(self.sequence, plan, self.loops, self.layout, sums)
        with tempfile.TemporaryDirectory(prefix="chameleon-sequence-") as made:
            folder = Path(made)
            (folder / "tables.h").write_text(text, encoding="utf-8")
            compile_c(SOURCES / "sequence.c", folder / "sequence.o", folder)
            calls = [str(folder / "sequence.o")]
            self.kernels.export_library(file_name, fcompile=_kept, addons=calls)
        write_weights(plan.blobs, Path(file_name).with_name(WEIGHTS), self.layout)


def _kept(file_name: str, objects: Sequence[str], **_: Any) -> None:
    """Keep objects that TVM would link."""
    with tarfile.open(Path(file_name).with_name(OBJECTS), "w") as archive:
        for number, file in enumerate(objects):
            archive.add(file, arcname=f"{number}{Path(file).suffix}")
