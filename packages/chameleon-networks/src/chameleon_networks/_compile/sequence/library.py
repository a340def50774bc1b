"""Plans the memory of a call sequence, and writes the files from which it is linked."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
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
from chameleon_networks._compile.sequence.repacking import Repacking, digest_of
from chameleon_networks._compile.sequence.state import state_pairs
from chameleon_networks._compile.sequence.weights import WEIGHTS, write_weights
from chameleon_networks._graph.relax_utils import tvm
from chameleon_networks._graph.strides import Shape

OBJECT_CACHE = "objects"
"""Folder in the user's cache folder with the object files of networks."""


def parallel_extents(function: tirx.PrimFunc) -> tuple[int, ...]:
    """The extents of a kernel's outermost parallel loops, 0 if dynamic."""
    # TVM drops loops of one iteration.
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


_EXTENT = -1
"""The number of an argument that is the extent of a call, and no tensor."""

_COMPARED_BYTES = 4096
"""About how many bytes of two constants are compared before all bytes are."""


@attrs.frozen(kw_only=True)
class Lifetime:
    """The size of a storage, and the calls between which it is needed.

    Attributes:
        size: The size in bytes.
        first: The number of the first call that uses the memory.
        last: The number of the last call that uses the memory.
    """

    size: int
    first: int
    last: int


@attrs.frozen(kw_only=True, eq=False)
class MemoryPlan:
    """The memory of each storage of a call sequence.

    Attributes:
        arena: The offset in bytes of each storage that lies in the arena, the memory for tensors
            between kernels.
        arena_size: The size of the arena in bytes.
        weights: For each constant, its number among the distinct constants.
        constants: The distinct constants.
        output_storages: The output's number for each storage in the memory of an output.
        copies: The tensors that must be copied to outputs, by the number of the output. The inputs
            before it have negative numbers, among them those whose new values are copied.
    """

    arena: Mapping[Storage, int]
    arena_size: int
    weights: Mapping[Storage, int]
    constants: tuple[NDArray[Any], ...]
    output_storages: Mapping[Storage, int]
    copies: Mapping[int, Tensor]


def plan_memory(sequence: CallSequence, *, deduplicate: bool = True) -> MemoryPlan:
    """Plan where each storage of a call sequence is in memory."""
    output_storages: dict[Storage, int] = {}
    copies: dict[int, Tensor] = {}
    for position, output in enumerate(sequence.outputs):
        storage = output.storage
        if storage.written and output.fills_storage and storage not in output_storages:
            output_storages[storage] = position
        else:
            copies[position] = output
    # Outputs may be parts of an earlier state, so they are copied before it.
    for position, (old, new) in enumerate(state_pairs(sequence), -len(sequence.state)):
        if new.storage is not old.storage:
            copies[position] = new
    lifetimes = _lifetimes(sequence, output_storages)
    offsets, arena_size = assign_offsets(list(lifetimes.values()))
    weights, constants = _number_constants(sequence, deduplicate=deduplicate)
    return MemoryPlan(
        arena=dict(zip(lifetimes, offsets, strict=True)),
        arena_size=arena_size,
        weights=weights,
        constants=constants,
        output_storages=output_storages,
        copies=copies,
    )


def assign_offsets(lifetimes: Sequence[Lifetime]) -> tuple[list[int], int]:
    """Assign offsets so that storages with overlapping lifetimes do not overlap, largest first."""
    offsets: dict[int, int] = {}
    for number in sorted(range(len(lifetimes)), key=lambda number: -lifetimes[number].size):
        lifetime = lifetimes[number]
        neighbours = sorted(
            (offsets[other], offsets[other] + aligned(lifetimes[other].size))
            for other in offsets
            if lifetimes[other].first <= lifetime.last and lifetime.first <= lifetimes[other].last
        )
        offsets[number] = _smallest_gap(neighbours, lifetime.size)
    ends = [offsets[number] + aligned(lifetime.size) for number, lifetime in enumerate(lifetimes)]
    return [offsets[number] for number in range(len(lifetimes))], max(ends, default=0)


def _smallest_gap(ranges: Sequence[tuple[int, int]], size: int) -> int:
    """The start of the smallest gap that is large enough, else the end of the last range."""
    best, at, smallest = None, 0, None
    for start, end in ranges:
        gap = start - at
        if gap >= size and (smallest is None or gap < smallest):
            best, smallest = at, gap
        at = max(at, end)
    return at if best is None else best


def _lifetimes(sequence: CallSequence, outputs: Mapping[Storage, int]) -> dict[Storage, Lifetime]:
    lifetimes: dict[Storage, Lifetime] = {}
    used = [*(call.arguments for call in sequence.calls), sequence.results]
    for number, tensors in enumerate(used):
        for tensor in tensors:
            storage = tensor.storage
            if storage.written and storage not in outputs:
                lifetime = Lifetime(size=storage.size, first=number, last=number)
                lifetimes[storage] = attrs.evolve(lifetimes.get(storage, lifetime), last=number)
    return lifetimes


def _number_constants(
    sequence: CallSequence, *, deduplicate: bool
) -> tuple[dict[Storage, int], tuple[NDArray[Any], ...]]:
    """The number of each constant among the distinct ones, and the distinct constants."""
    numbers: dict[Storage, int] = {}
    by_sample: dict[tuple[int, bytes], list[int]] = defaultdict(list)
    constants: list[NDArray[Any]] = []
    tensors = [tensor for call in sequence.calls for tensor in call.arguments]
    for tensor in [*tensors, *sequence.results]:
        storage = tensor.storage
        if storage.constant is None or storage in numbers:
            continue
        data = _bytes(storage.constant)
        # Different constants of one size mostly differ in a sample of their bytes.
        sample = data[:: max(1, len(data) // _COMPARED_BYTES)].tobytes()
        candidates = by_sample[len(data), sample] if deduplicate else []
        same = (number for number in candidates if np.array_equal(_bytes(constants[number]), data))
        number = next(same, None)
        if number is None:
            number = len(constants)
            constants.append(storage.constant)
            candidates.append(number)
        numbers[storage] = number
    return numbers, tuple(constants)


def _bytes(constant: NDArray[Any]) -> NDArray[np.ubyte]:
    return constant.reshape(-1).view(np.ubyte)


@attrs.frozen(kw_only=True, eq=False)
class StoredConstants:
    """The constants of a weight file, and those that a network makes of them.

    Attributes:
        stored: The constants in the file.
        places: For each distinct constant of the network, its kind of memory and its number there.
        made: For each constant that is not in the file: how it is made, the number of the file's
            constant, and its size in bytes.
    """

    stored: Sequence[NDArray[Any]]
    places: Sequence[tuple[str, int]]
    made: Sequence[tuple[Repacking, int, int]] = ()

    @classmethod
    def of(
        cls, constants: Sequence[NDArray[Any]], repackings: Mapping[bytes, Repacking]
    ) -> StoredConstants:
        """Choose the constants of a file, by the digests of those that need not be in it."""
        if not repackings:
            own = [("CONSTANT", number) for number in range(len(constants))]
            return cls(stored=constants, places=own)
        stored: list[NDArray[Any]] = []
        places: list[tuple[str, int]] = []
        made: list[tuple[Repacking, int, int]] = []
        for constant in constants:
            repacking = repackings.get(digest_of(constant))
            number = len(stored)
            stored.append(constant if repacking is None else repacking.source)
            if repacking is None:
                places.append(("CONSTANT", number))
            else:
                places.append(("REPACKED", len(made)))
                made.append((repacking, number, constant.nbytes))
        return cls(stored=stored, places=places, made=made)


class _TableWriter:
    """Writes the C header ``tables.h`` of ``runtime/tables.c``, with calls and tensors."""

    def __init__(
        self,
        sequence: CallSequence,
        plan: MemoryPlan,
        constants: StoredConstants,
        loops: Mapping[str, Sequence[int]],
        takes_extent: Collection[str],
    ) -> None:
        self._sequence = sequence
        self._plan = plan
        self._constants = constants
        self._loops = loops
        self._takes_extent = takes_extent
        self._extents: list[int] = []
        self._strides: list[int] = []
        self._layouts: dict[tuple[Shape, Shape], int] = {}
        arguments = [tensor for call in sequence.calls for tensor in call.arguments]
        tensors = dict.fromkeys([*arguments, *plan.copies.values()])
        self._tensors = {tensor: number for number, tensor in enumerate(tensors)}

    def text(self, layout: int, sums: Sequence[int], extent: int) -> str:
        """The C header of the network's calls and memory."""
        # ``layout`` identifies packed weights; a checksum of 0 in ``sums`` accepts any content.
        sequence, plan, numbers = self._sequence, self._plan, self._tensors
        entries = [self._entry(tensor) for tensor in numbers]
        bound = [
            number
            for tensor, number in numbers.items()
            if self._place(tensor)[0] in {"INPUT", "OUTPUT"}
        ]
        arguments: list[int] = []
        loops: list[int] = []
        calls = []
        for call in sequence.calls:
            own = self._loops.get(call.symbol, ())
            passed = [numbers[tensor] for tensor in call.arguments]
            passed += [_EXTENT] if call.symbol in self._takes_extent else []
            places = f"{len(arguments)}, {len(passed)}, {len(loops)}, {len(own)}"
            calls.append(f"{{{_exported_symbol(call.symbol)}, {places}}}")
            arguments += passed
            loops += own
        copies = [
            f"{{{position}, {numbers[tensor]}, {tensor.size}}}"
            for position, tensor in plan.copies.items()
        ]
        repackings = self._repackings()
        sizes = {
            "INPUTS": len(sequence.inputs),
            "LAYOUT": layout,
            "PACKING": self._packing(*repackings),
            "TENSORS": len(entries),
            "BOUND": len(bound),
            "ARGUMENTS": len(arguments),
            "CALLS": len(calls),
            "COPIES": len(copies),
            "ARENA_SIZE": max(plan.arena_size, ALIGNMENT),
            "CONSTANTS": len(self._constants.stored),
            "REPACKINGS": len(self._constants.made),
            "EXTENT": extent,
        }
        symbols = dict.fromkeys(call.symbol for call in sequence.calls)
        names = "".join(f'"{call.kernel}\\n"\n' for call in sequence.calls)
        return "\n".join(
            (
                *(f"#define {name} {size}" for name, size in sizes.items()),
                *(_declaration(symbol) for symbol in symbols),
                c_array("int64_t", "extents", self._extents),
                c_array("int64_t", "strides", self._strides),
                c_array("struct tensor", "tensors", entries),
                c_array("int32_t", "bound", bound),
                c_array("int32_t", "passed", arguments),
                c_array("int64_t", "loops", loops),
                c_array("uint32_t", "sums", sums),
                c_array("struct call", "calls", calls),
                c_array("struct copy", "copies", copies),
                *repackings,
                f"static const char kernels[] = {names};",
            )
        )

    def _repackings(self) -> tuple[str, str]:
        """The C arrays ``repackings`` and ``places``, in which equal places come once."""
        entries: list[str] = []
        places: list[int] = []
        firsts: dict[bytes, int] = {}
        for repacking, number, size in self._constants.made:
            own = np.concatenate([*repacking.rows, *repacking.columns])
            first = firsts.setdefault(own.tobytes(), len(places))
            if first == len(places):
                places += own.tolist()
            source = repacking.source
            facts = number, source.itemsize, repacking.parts, repacking.stride
            extents = repacking.rows.shape[1], repacking.columns.shape[1]
            row = ", ".join(map(str, (*facts, *extents, first, size, source.nbytes)))
            entries.append(f"{{{row}}}")
        return (
            c_array("struct repacking", "repackings", entries),
            c_array("int32_t", "places", places),
        )

    def _packing(self, *repackings: str) -> str:
        """A digest of the constants that the runtime makes of others, as a number of C."""
        made = hashlib.blake2b("".join(repackings).encode(), digest_size=8)
        for repacking, _, _ in self._constants.made:
            made.update(digest_of(repacking.source))
        return f"0x{made.hexdigest()}ULL"

    def _place(self, tensor: Tensor) -> tuple[str, int, int]:
        """The kind of memory that a tensor is in, its number there, and the offset in bytes."""
        storage = tensor.storage
        if storage.input is not None:
            return "INPUT", storage.input, tensor.offset
        if storage.constant is not None:
            return *self._constants.places[self._plan.weights[storage]], tensor.offset
        if storage in self._plan.output_storages:
            return "OUTPUT", self._plan.output_storages[storage], tensor.offset
        return "ARENA", 0, self._plan.arena[storage] + tensor.offset

    def _entry(self, tensor: Tensor) -> str:
        place, position, offset = self._place(tensor)
        address = f"{place}, {position}, {offset}, {_byte_span(tensor)}"
        kind: Any = tvm.DataType(tensor.dtype)
        layout = (tensor.shape, tensor.strides)
        if layout not in self._layouts:
            self._layouts[layout] = len(self._extents)
            self._extents += tensor.shape
            self._strides += tensor.strides
        dtype = f"{{{int(kind.type_code)}, {int(kind.bits)}, {int(kind.lanes)}}}"
        return f"{{{address}, {len(tensor.shape)}, {self._layouts[layout]}, {dtype}}}"


def _byte_span(tensor: Tensor) -> int:
    """Bytes from the start of a tensor's first element to the end of its last one."""
    if 0 in tensor.shape:
        return 0
    last = sum((n - 1) * stride for n, stride in zip(tensor.shape, tensor.strides, strict=True))
    return (last + 1) * bytes_of((1,), tensor.dtype)


def _exported_symbol(symbol: str) -> str:
    """The symbol with which TVM exports a function."""
    return f"__tvm_ffi_{symbol}"


def _declaration(symbol: str) -> str:
    """The C declaration of a function, hidden from other libraries with the same name in them."""
    return (
        f'extern __attribute__((visibility("hidden"))) int {_exported_symbol(symbol)}'
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
        takes_extent: The symbols of functions whose last parameter is the extent of a call.
        extent: The largest extent of a call; 0 if calls have no extent.
        layout: A number that identifies the layout in which the caller packs an operator's weights
            before a call. It is 0 if all weights are constants of the library.
        repackings: How constants that need not be in the weight file are made of others, by their
            digests.
    """

    kernels: Callable[[], bytes]
    sequence: CallSequence
    loops: Mapping[str, Sequence[int]]
    takes_extent: frozenset[str] = frozenset()
    extent: int = 0
    layout: int = 0
    repackings: Mapping[bytes, Repacking] = attrs.field(factory=dict)

    def export_library(self, file_name: str) -> None:
        """Write a library's object files and, apart from them, its weights."""
        # Linkers need seconds for hundreds of megabytes, and libraries may share weights.
        own = bool(self.layout)
        # The caller packs each weight, even if some are equal.
        plan = plan_memory(self.sequence, deduplicate=not own)
        constants = StoredConstants.of(plan.constants, self.repackings)
        sums = write_weights(constants.stored, Path(file_name).with_name(WEIGHTS), self.layout)
        if own:  # the caller replaces these weights
            sums = [0] * len(sums)
        writer = _TableWriter(self.sequence, plan, constants, self.loops, self.takes_extent)
        text = writer.text(self.layout, sums, self.extent)
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
