"""A tuned operator as a folder: a library, its loader, and what packs weights for it.

It is a network of one kernel: the library, the manifest and the loader are those of networks,
constants are the weights, and activations are passed in the layouts that the kernel reads.
"""

from __future__ import annotations

import json
import platform
import shutil
import zlib
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from chameleon_core.errors import ConfigError, TargetError
from chameleon_core.stages import Arrays, SpaceProvider, Winner
from chameleon_core.versions import installed
from chameleon_tvm.building.builder import TVMBuilder
from chameleon_tvm.building.exporting import tvm_builder
from chameleon_tvm.building.kernel import Program
from chameleon_tvm.building.lowering import lower_function
from chameleon_tvm.device.linking import architecture, host_triple, own_triple
from chameleon_tvm.device.targets import tvm_target
from chameleon_tvm.instructions.emission import permissions_of
from numpy.typing import NDArray

from chameleon_networks.compile.sequence.calls import Call, CallSequence, Storage, Tensor, bytes_of
from chameleon_networks.compile.sequence.library import SequenceExecutable
from chameleon_networks.compile.sequence.parallel_loops import parallel_extents
from chameleon_networks.compile.sequence.variants import extents, with_variants
from chameleon_networks.export.recording import NotRecordedError, Recording
from chameleon_networks.graph.strides import dense_strides
from chameleon_networks.package.package import VERSIONED, check_compiler, cpu_of, write_package
from chameleon_networks.runtime.linking import SOURCES
from chameleon_networks.runtime.pack import ARRAYS, PACKING, replayed

MAIN = "main"
_FORMAT = 2


def deliver_operator(winner: Winner, space: SpaceProvider, folder: Path, threads: int) -> None:
    """Write the folder of an operator.

    Its weights.bin holds the weights that it was measured with: random numbers, to be replaced by
    what ``pack_weights`` makes.

    Args:
        winner: of a run.
        space: what it is a configuration of.
        folder: made where it is missing.
        threads: that it was measured with.

    Raises:
        TargetError: it is for another kind of processor, or there is no C compiler.
        ConfigError: how its weights are packed cannot be written down.
        InvalidConfigurationError: TVM makes another program of a configuration than it did.
    """
    _check_target(winner.task.target)
    check_compiler()
    builder = tvm_builder(space, winner)
    program = builder.program(winner.config)
    packing = _packing(builder, winner, program)
    sequence = _sequence(builder, program)
    resolved = tvm_target(winner.task.target)
    sequence, functions = with_variants(sequence, {MAIN: program.function})
    [function] = functions.values()
    kernels = lower_function(function, resolved, plain_loops=program.plain_loops)
    executable = SequenceExecutable(
        kernels=kernels,
        sequence=sequence,
        loops={MAIN: parallel_extents(function)},
        layout=0 if packing is None else packing.told["layout"],
    )
    manifest = _manifest(winner, builder, program, threads)
    folder.mkdir(parents=True, exist_ok=True)
    if packing is not None:
        packing.write(folder)
    write_package(folder, executable, manifest)


def _check_target(target: str) -> None:
    """Refuse what cannot be linked here; what this CPU merely lacks, another one may have.

    Raises:
        TargetError: it is for no CPU, or for one of another architecture.
    """
    resolved = tvm_target(target)
    wanted, own = architecture(host_triple(resolved)), architecture(own_triple())
    if resolved.kind.name != "llvm" or wanted != own:
        kind = wanted if resolved.kind.name == "llvm" else resolved.kind.name
        raise TargetError(
            f"operators are delivered as libraries for CPUs like this one ({own}) only, and the "
            f"target is {kind}",
            hint="`--to tvmscript` writes the function for any target.",
        )


@attrs.frozen(kw_only=True, eq=False)
class Packing:
    """How an operator's constants are packed.

    Attributes:
        told: for ``pack.py``.
        kept: arrays that take part.
    """

    told: dict[str, Any]
    kept: Arrays

    def write(self, folder: Path) -> None:
        """Put it into a folder, and what reads it."""
        (folder / PACKING).write_text(json.dumps(self.told) + "\n", encoding="utf-8")
        np.savez_compressed(folder / ARRAYS, *self.kept)
        shutil.copyfile(SOURCES / "pack.py", folder / "pack.py")


def _sequence(builder: TVMBuilder, program: Program) -> CallSequence:
    """The operator as a network of one call."""
    tensors: list[Tensor] = []
    inputs: list[Tensor] = []
    for place, parameter in enumerate(program.function.params):
        shape, dtype = extents(parameter), str(parameter.dtype)
        of: dict[str, Any] = {}
        if place in builder.operator.constants:
            of["constant"] = np.ascontiguousarray(program.inputs[place])
        elif place < len(program.inputs):
            of["input"] = len(inputs)
        storage = Storage(size=bytes_of(shape, dtype), **of)
        strides = dense_strides(shape)
        tensors.append(Tensor(storage=storage, shape=shape, strides=strides, dtype=dtype))
        if "input" in of:
            inputs.append(tensors[-1])
    count = len(program.inputs)
    call = Call(kernel=MAIN, reads=tuple(tensors[:count]), writes=tuple(tensors[count:]))
    return CallSequence(inputs=tuple(inputs), calls=(call,), outputs=tuple(tensors[count:]))


def _manifest(
    winner: Winner, builder: TVMBuilder, program: Program, threads: int
) -> dict[str, Any]:
    task, operator = winner.task, builder.operator
    described = [
        {"name": str(one.name), "shape": list(extents(one)), "dtype": str(one.dtype)}
        for one in program.function.params
    ]
    count = len(program.inputs)
    permissions = sorted(permissions_of(program.function))
    return {
        "format": _FORMAT,
        # Not operator.so: Python would take it for its own module of that name.
        "module": "kernel.so",
        "operator": task.operator,
        "task": task.to_json(),
        "config": list(winner.config),
        "seconds": winner.seconds,
        "target": json.loads(task.target),
        **cpu_of(tvm_target(task.target)),
        "threads": threads,
        "inputs": [described[place] for place in range(count) if place not in operator.constants],
        "outputs": described[count:],
        **({"permissions": permissions} if permissions else {}),
        "versions": installed(VERSIONED),
        "system": platform.platform(),
    }


def _packing(builder: TVMBuilder, winner: Winner, program: Program) -> Packing | None:
    """How constants are packed, or None where there are none.

    Raises:
        ConfigError: it cannot be written down.
    """
    places = sorted(builder.operator.constants)
    if not places:
        return None
    logical = list(builder.inputs)
    recording, recorded = Recording.of([logical[place] for place in places])
    refused = f"how the weights of task {winner.task.name!r} are packed cannot be written down"
    hint = "Export its function with `--to tvmscript`, and pack weights with its template's `pack`."
    try:
        packed = _packed(builder, winner, recorded)
        outputs = [_kept(recording, one) for one in packed]
    except NotRecordedError as error:
        raise ConfigError(f"{refused}: it does {error}", hint=hint) from error
    finally:
        builder.use(logical)
    kept: list[int | None] = [None] * len(places)
    for place in sorted(recording.fixed):
        kept[place] = len(recording.constants)
        recording.constants.append(recording.inputs[place])
    names = [str(program.function.params[place].name) for place in places]
    told = {
        "inputs": [
            {"name": name, "shape": list(one.shape), "dtype": one.dtype.name}
            for name, one in zip(names, recording.inputs, strict=True)
        ],
        "fixed": kept,
        "steps": recording.steps,
        "outputs": outputs,
        "constants": [f"arr_{number}" for number in range(len(recording.constants))],
    }
    # Weights that were packed for another kernel are told from one's own by this number.
    told["layout"] = 1 + zlib.crc32(json.dumps(told, sort_keys=True).encode())
    made = Packing(told=json.loads(json.dumps(told)), kept=recording.constants)
    _check(made, builder, winner, refused, hint)
    return made


def _packed(builder: TVMBuilder, winner: Winner, constants: Arrays) -> Arrays:
    """Constants as a kernel reads them, packed by its own builder."""
    places = sorted(builder.operator.constants)
    inputs = list(builder.inputs)
    for place, one in zip(places, constants, strict=True):
        inputs[place] = one
    builder.use(inputs)
    program = builder.program(winner.config)
    return [program.inputs[place] for place in places]


def _kept(recording: Recording, array: NDArray[Any]) -> dict[str, int]:
    """Where ``pack.py`` finds a packed array."""
    number = recording.number_of(array)
    if number is None:
        raise NotRecordedError("something that leaves the recording")
    return {"array": number}


def _check(packing: Packing, builder: TVMBuilder, winner: Winner, refused: str, hint: str) -> None:
    """See that what is written down packs other weights as the template does.

    Raises:
        ConfigError: it does not.
    """
    logical = list(builder.inputs)
    rng = np.random.default_rng(0)
    places = sorted(builder.operator.constants)
    # The same numbers in another order are of the same type and range.
    others = [
        logical[place]
        if packing.told["fixed"][number] is not None
        else rng.permutation(logical[place].reshape(-1)).reshape(logical[place].shape)
        for number, place in enumerate(places)
    ]
    try:
        wanted = _packed(builder, winner, others)
    finally:
        builder.use(logical)
    found = replayed(packing.told, others, packing.kept)
    for one, other in zip(found, wanted, strict=True):
        if np.ascontiguousarray(one).tobytes() != np.ascontiguousarray(other).tobytes():
            raise ConfigError(f"{refused}: other weights are packed otherwise", hint=hint)
