"""A call sequence and its kernels as objects and weights, of which a library is linked."""

from __future__ import annotations

import tarfile
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from chameleon_networks.compile.sequence.calls import CallSequence, Tensor, bytes_of
from chameleon_networks.compile.sequence.plan import Plan, planned
from chameleon_networks.compile.sequence.weights import WEIGHTS, checksums, write_weights
from chameleon_networks.graph.relaxed import tvm
from chameleon_networks.graph.strides import Shape
from chameleon_networks.runtime.linking import OBJECTS, SOURCES, compile_c
from chameleon_networks.runtime.pack import ALIGNMENT


def tables(
    sequence: CallSequence,
    plan: Plan,
    loops: Mapping[str, Sequence[int]],
    layout: int,
    sums: Sequence[int],
) -> str:
    """The text of ``tables.h``.

    Args:
        sequence: the network.
        plan: where its tensors are.
        loops: extents of each function's parallel loops, by its symbol.
        layout: of the weights.
        sums: the checksum that each constant has to have; 0 if any will do.
    """
    return _Tables(sequence, plan, loops).text(layout, sums)


class _Tables:
    def __init__(
        self, sequence: CallSequence, plan: Plan, loops: Mapping[str, Sequence[int]]
    ) -> None:
        self._sequence = sequence
        self._plan = plan
        self._loops = loops
        self._extents: list[int] = []
        self._strides: list[int] = []
        self._layouts: dict[tuple[Shape, Shape], int] = {}
        self._tensors: dict[Tensor, int] = {}
        for call in sequence.calls:
            for tensor in call.arguments:
                self._tensors.setdefault(tensor, len(self._tensors))
        for position in plan.copied:
            self._tensors.setdefault(sequence.outputs[position], len(self._tensors))

    def text(self, layout: int, sums: Sequence[int]) -> str:
        """All tables."""
        sequence, plan, numbers = self._sequence, self._plan, self._tensors
        entries = [self._entry(tensor) for tensor in numbers]
        bound = [
            number
            for tensor, number in numbers.items()
            if self._place(tensor)[0] in {"INPUT", "OUTPUT"}
        ]
        passed: list[int] = []
        loops: list[int] = []
        calls = []
        for call in sequence.calls:
            own = self._loops.get(call.symbol, ())
            places = f"{len(passed)}, {len(call.arguments)}, {len(loops)}, {len(own)}"
            calls.append(f"{{{_entry_of(call.symbol)}, {places}}}")
            passed += [numbers[tensor] for tensor in call.arguments]
            loops += own
        copies = []
        for position in plan.copied:
            output = sequence.outputs[position]
            copies.append(f"{{{position}, {numbers[output]}, {output.size}}}")
        sizes = {
            "INPUTS": len(sequence.inputs),
            "LAYOUT": layout,
            "TENSORS": len(entries),
            "BOUND": len(bound),
            "ARGUMENTS": len(passed),
            "CALLS": len(calls),
            "COPIES": len(copies),
            "ARENA_SIZE": max(plan.arena_size, ALIGNMENT),
            "CONSTANTS": len(plan.blobs),
        }
        symbols = dict.fromkeys(call.symbol for call in sequence.calls)
        names = "".join(f'"{call.kernel}\\n"\n' for call in sequence.calls)
        return "\n".join(
            (
                *(f"#define {name} {size}" for name, size in sizes.items()),
                *(_declared(symbol) for symbol in symbols),
                _array("int64_t", "extents", self._extents),
                _array("int64_t", "strides", self._strides),
                _array("struct tensor", "tensors", entries),
                _array("int32_t", "bound", bound),
                _array("int32_t", "passed", passed),
                _array("int64_t", "loops", loops),
                _array("uint32_t", "sums", sums),
                _array("struct call", "calls", calls),
                _array("struct copy", "copies", copies),
                f"const char sequence_kernels[] = {names};",
            )
        )

    def _place(self, tensor: Tensor) -> tuple[str, int, int]:
        """The kind of memory a tensor is in, its position there, and the bytes from its start."""
        storage = tensor.storage
        if storage.input is not None:
            return "INPUT", storage.input, tensor.offset
        if storage.constant is not None:
            return "CONSTANT", self._plan.weights[storage], tensor.offset
        if storage in self._plan.returned:
            return "OUTPUT", self._plan.returned[storage], tensor.offset
        return "ARENA", 0, self._plan.arena[storage] + tensor.offset

    def _entry(self, tensor: Tensor) -> str:
        place, position, offset = self._place(tensor)
        return self._described(tensor, f"{place}, {position}, {offset}, {_reach(tensor)}")

    def _described(self, tensor: Tensor, place: str) -> str:
        kind: Any = tvm.DataType(tensor.dtype)
        layout = (tensor.shape, tensor.strides)
        if layout not in self._layouts:
            self._layouts[layout] = len(self._extents)
            self._extents += tensor.shape
            self._strides += tensor.strides
        dtype = f"{{{int(kind.type_code)}, {int(kind.bits)}, {int(kind.lanes)}}}"
        return f"{{{place}, {len(tensor.shape)}, {self._layouts[layout]}, {dtype}}}"


def _reach(tensor: Tensor) -> int:
    """Bytes from a tensor's first element to the end of its last one."""
    if 0 in tensor.shape:
        return 0
    last = sum(
        (extent - 1) * stride for extent, stride in zip(tensor.shape, tensor.strides, strict=True)
    )
    return (last + 1) * bytes_of((1,), tensor.dtype)


def _entry_of(symbol: str) -> str:
    """What TVM calls the packed entry of a function."""
    return f"__tvm_ffi_{symbol}"


def _declared(symbol: str) -> str:
    """A function's declaration; hidden, so that no other library's of its name is taken."""
    return (
        f'extern __attribute__((visibility("hidden"))) int {_entry_of(symbol)}'
        "(void *, const TVMFFIAny *, int32_t, TVMFFIAny *);"
    )


def _array(kind: str, name: str, values: Iterable[object]) -> str:
    """A table; C has none without elements."""
    body = ",\n".join(map(str, values)) or "0"
    return f"static const {kind} {name}[] = {{\n{body}\n}};"


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
