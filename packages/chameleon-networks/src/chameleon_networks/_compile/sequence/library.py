"""Writes the object files and the weights of a call sequence, from which a library is linked."""

from __future__ import annotations

import io
import tarfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from chameleon_system.api import temporary_folder
from chameleon_tvm.api import tirx
from numpy.typing import NDArray
from tvm_ffi.structural import WalkResult, structural_walk

from chameleon_networks._c_runtime.linking import OBJECTS, SOURCES, c_array, compile_c
from chameleon_networks._c_runtime.pack import ALIGNMENT, aligned
from chameleon_networks._compile.sequence.calls import CallSequence, Storage, Tensor, bytes_of
from chameleon_networks._compile.sequence.weights import WEIGHTS, write_weights
from chameleon_networks._graph.relaxed import tvm
from chameleon_networks._graph.strides import Shape

KEPT_OBJECTS = "objects"
"""Folder in the user's cache folder with the object files of networks."""


def parallel_extents(function: tirx.PrimFunc) -> tuple[int, ...]:
    """The numbers of iterations of a kernel's parallel loops, in the order of its code.

    The run-time library divides these iterations among threads.

    A number that is not constant becomes 0. Loops inside of a parallel loop do not count, and
    neither do loops of one iteration, because TVM drops them.

    Args:
        function: A scheduled function.
    """
    extents: list[int] = []

    def add(loop: Any) -> WalkResult:
        if int(loop.kind) != int(tirx.ForKind.PARALLEL):
            return WalkResult.ADVANCE
        constant = isinstance(loop.extent, tirx.IntImm)
        extent = int(loop.extent) if constant else 0
        if extent == 1:
            return WalkResult.ADVANCE
        extents.append(extent)
        return WalkResult.SKIP

    structural_walk(function.body, (tirx.For, add), order="pre")
    return tuple(extents)


_FEW = 4096
"""About how many bytes of two constants are compared before all bytes are."""


@attrs.frozen(kw_only=True)
class Interval:
    """The size of a piece of memory, and the calls during which it is needed.

    Attributes:
        size: The size in bytes.
        first: The number of the first call that uses the memory.
        last: The number of the last call that uses the memory.
    """

    size: int
    first: int
    last: int


@attrs.frozen(kw_only=True, eq=False)
class Plan:
    """The place in memory of each tensor of a network (call sequence).

    Attributes:
        arena: The offset in bytes of each storage that lies in the arena, the memory for tensors
            between kernels.
        arena_size: The size of the arena in bytes.
        weights: For each constant, its number among the distinct constants.
        blobs: The distinct constants.
        returned: For each storage that lies in the memory of an output, the output's number.
        copied: The numbers of the outputs that must be copied from other tensors.
    """

    arena: Mapping[Storage, int]
    arena_size: int
    weights: Mapping[Storage, int]
    blobs: tuple[NDArray[Any], ...]
    returned: Mapping[Storage, int]
    copied: tuple[int, ...]


def planned(sequence: CallSequence, *, merged: bool = True) -> Plan:
    """Plan where each tensor of a call sequence lies in memory.

    Args:
        sequence: The calls.
        merged: Whether constants with equal bytes are stored once.
    """
    returned: dict[Storage, int] = {}
    copied = []
    for position, output in enumerate(sequence.outputs):
        if output.storage.written and output.whole and output.storage not in returned:
            returned[output.storage] = position
        else:
            copied.append(position)
    alive = _lifetimes(sequence, returned)
    offsets, arena_size = placed(list(alive.values()))
    weights, blobs = _weights(sequence, merged=merged)
    return Plan(
        arena=dict(zip(alive, offsets, strict=True)),
        arena_size=arena_size,
        weights=weights,
        blobs=blobs,
        returned=returned,
        copied=tuple(copied),
    )


def placed(intervals: Sequence[Interval]) -> tuple[list[int], int]:
    """Choose offsets in memory so that data that are needed at the same time do not overlap.

    Args:
        intervals: The pieces of memory to place.

    Returns:
        The offset of each interval, a multiple of ``ALIGNMENT``, and the total size in bytes.
    """
    offsets: dict[int, int] = {}
    for number in sorted(range(len(intervals)), key=lambda number: -intervals[number].size):
        interval = intervals[number]
        neighbours = sorted(
            (offsets[other], offsets[other] + aligned(intervals[other].size))
            for other in offsets
            if intervals[other].first <= interval.last and interval.first <= intervals[other].last
        )
        offsets[number] = _gap(neighbours, interval.size)
    ends = [offsets[number] + aligned(interval.size) for number, interval in enumerate(intervals)]
    return [offsets[number] for number in range(len(intervals))], max(ends, default=0)


def _gap(ranges: Sequence[tuple[int, int]], size: int) -> int:
    """The start of the smallest gap that is large enough, else the end of the last range."""
    best, at, smallest = None, 0, None
    for start, end in ranges:
        gap = start - at
        if gap >= size and (smallest is None or gap < smallest):
            best, smallest = at, gap
        at = max(at, end)
    return at if best is None else best


def _lifetimes(sequence: CallSequence, returned: Mapping[Storage, int]) -> dict[Storage, Interval]:
    alive: dict[Storage, Interval] = {}
    used = [*(call.arguments for call in sequence.calls), sequence.outputs]
    for number, tensors in enumerate(used):
        for tensor in tensors:
            storage = tensor.storage
            if storage.written and storage not in returned:
                known = alive.get(storage, Interval(size=storage.size, first=number, last=number))
                alive[storage] = attrs.evolve(known, last=number)
    return alive


def _weights(
    sequence: CallSequence, *, merged: bool
) -> tuple[dict[Storage, int], tuple[NDArray[Any], ...]]:
    """The number of each constant, and the distinct constants.

    Equal ones are merged if ``merged``.
    """
    numbers: dict[Storage, int] = {}
    alike: dict[tuple[int, bytes], list[int]] = defaultdict(list)
    blobs: list[NDArray[Any]] = []
    tensors = [tensor for call in sequence.calls for tensor in call.arguments]
    for tensor in [*tensors, *sequence.outputs]:
        storage = tensor.storage
        if storage.constant is None or storage in numbers:
            continue
        data = _bytes(storage.constant)
        # Constants of one size mostly differ in any few of their bytes.
        few = data[:: max(1, len(data) // _FEW)].tobytes()
        candidates = alike[len(data), few] if merged else []
        same = (blob for blob in candidates if np.array_equal(_bytes(blobs[blob]), data))
        number = next(same, None)
        if number is None:
            number = len(blobs)
            blobs.append(storage.constant)
            candidates.append(number)
        numbers[storage] = number
    return numbers, tuple(blobs)


def _bytes(constant: NDArray[Any]) -> NDArray[np.ubyte]:
    return constant.reshape(-1).view(np.ubyte)


class _Tables:
    """Writes the C header ``tables.h``, which describes a network's calls and tensors.

    ``runtime/tables.c`` includes the header.

    Args:
        sequence: The calls of the network.
        plan: The places of the tensors in memory.
        loops: The extents of each function's parallel loops, by the function's symbol.
    """

    def __init__(
        self, sequence: CallSequence, plan: Plan, loops: Mapping[str, Sequence[int]]
    ) -> None:
        self._sequence = sequence
        self._plan = plan
        self._loops = loops
        self._extents: list[int] = []
        self._strides: list[int] = []
        self._layouts: dict[tuple[Shape, Shape], int] = {}
        passed = [tensor for call in sequence.calls for tensor in call.arguments]
        copied = [sequence.outputs[position] for position in plan.copied]
        tensors = dict.fromkeys([*passed, *copied])
        self._tensors = {tensor: number for number, tensor in enumerate(tensors)}

    def text(self, layout: int, sums: Sequence[int]) -> str:
        """Write the C header that describes the network's calls and memory to the run-time library.

        Args:
            layout: The number of the layout in which the weights are packed. The library refuses a
                file of weights with another number.
            sums: The checksum of each constant in the file of weights. With 0, the library accepts
                any content.
        """
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
                c_array("int64_t", "extents", self._extents),
                c_array("int64_t", "strides", self._strides),
                c_array("struct tensor", "tensors", entries),
                c_array("int32_t", "bound", bound),
                c_array("int32_t", "passed", passed),
                c_array("int64_t", "loops", loops),
                c_array("uint32_t", "sums", sums),
                c_array("struct call", "calls", calls),
                c_array("struct copy", "copies", copies),
                f"static const char kernels[] = {names};",
            )
        )

    def _place(self, tensor: Tensor) -> tuple[str, int, int]:
        """The kind of memory that a tensor lies in, its number there, and the offset in bytes."""
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
        address = f"{place}, {position}, {offset}, {_reach(tensor)}"
        kind: Any = tvm.DataType(tensor.dtype)
        layout = (tensor.shape, tensor.strides)
        if layout not in self._layouts:
            self._layouts[layout] = len(self._extents)
            self._extents += tensor.shape
            self._strides += tensor.strides
        dtype = f"{{{int(kind.type_code)}, {int(kind.bits)}, {int(kind.lanes)}}}"
        return f"{{{address}, {len(tensor.shape)}, {self._layouts[layout]}, {dtype}}}"


def _reach(tensor: Tensor) -> int:
    """Bytes from the start of a tensor's first element to the end of its last one."""
    if 0 in tensor.shape:
        return 0
    last = sum(
        (extent - 1) * stride for extent, stride in zip(tensor.shape, tensor.strides, strict=True)
    )
    return (last + 1) * bytes_of((1,), tensor.dtype)


def _entry_of(symbol: str) -> str:
    """The symbol with which TVM exports a function."""
    return f"__tvm_ffi_{symbol}"


def _declared(symbol: str) -> str:
    """The C declaration of a function, hidden from other libraries with the same name in them."""
    return (
        f'extern __attribute__((visibility("hidden"))) int {_entry_of(symbol)}'
        "(void *, const TVMFFIAny *, int32_t, TVMFFIAny *);"
    )


@attrs.frozen(kw_only=True, eq=False)
class SequenceExecutable:
    """A compiled call sequence, which replaces ``relax.Executable`` and its virtual machine.

    Attributes:
        kernels: A function that returns the archive of object files with the functions that the
            calls name. It may wait for a compiler, so the rest of the library is written before.
        sequence: The calls.
        loops: The extents of each function's parallel loops, by the function's symbol.
        layout: A number that identifies the layout in which the caller packs an operator's weights
            before a call. It is 0 if all weights are constants of the library.
    """

    kernels: Callable[[], bytes]
    sequence: CallSequence
    loops: Mapping[str, Sequence[int]]
    layout: int = 0

    def export_library(self, file_name: str) -> None:
        """Write the input of ``link_library`` into a library's folder: object files and weights.

        The weights are a separate file, because linkers need seconds for hundreds of megabytes, and
        because several libraries may share weights.

        Args:
            file_name: The path of the library.

        Raises:
            ChameleonError: The C compiler fails.
        """
        own = bool(self.layout)
        # Whoever packs weights knows nothing of constants that happen to be equal.
        plan = planned(self.sequence, merged=not own)
        sums = write_weights(plan.blobs, Path(file_name).with_name(WEIGHTS), self.layout)
        if own:  # other weights may replace these
            sums = [0] * len(sums)
        text = _Tables(self.sequence, plan, self.loops).text(self.layout, sums)
        with temporary_folder() as name:
            folder = Path(name)
            (folder / "tables.h").write_text(text, encoding="utf-8")
            compile_c(SOURCES / "tables.c", folder / "tables.o", folder)
            objects = Path(file_name).with_name(OBJECTS)
            objects.write_bytes(self.kernels())
            with tarfile.open(objects, "a") as archive:
                archive.add(folder / "tables.o", arcname="tables.o")


def object_files(kernels: Any) -> list[bytes]:
    """The contents of the object files of a compiled ``tvm.runtime.Module``."""
    contents: list[bytes] = []

    def read(_: str, objects: Sequence[str], **__: Any) -> None:
        contents.extend(Path(file).read_bytes() for file in objects)

    with temporary_folder() as folder:
        kernels.export_library(str(Path(folder, OBJECTS)), fcompile=read)
    return contents


def archive_of(objects: Iterable[bytes]) -> bytes:
    """An archive of object files, with their numbers as names."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for number, content in enumerate(objects):
            member = tarfile.TarInfo(f"{number}.o")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()
