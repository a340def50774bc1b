"""The networks that Chameleon reads: its builtin ones, PyTorch modules and ONNX files."""

from __future__ import annotations

import tempfile
import warnings
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import attrs
import cattrs
import numpy as np
import structlog
from chameleon_core.api import NetworkResult
from chameleon_core.plugin_api import FLOAT32, Arrays
from chameleon_system.api import temporary_folder
from chameleon_tvm.api import INT8, UINT8
from numpy.typing import NDArray

from chameleon_networks._frameworks import inference
from chameleon_networks._frameworks.precision import in_float32, in_float64, rounded
from chameleon_networks._importers.imported_network import ImportedNetwork
from chameleon_networks._importers.onnx import models
from chameleon_networks._importers.options import (
    BuiltinOptions,
    NetworkOptions,
    OnnxOptions,
    TorchOptions,
)
from chameleon_networks._importers.torch import programs
from chameleon_networks._importers.torch.programs import ExampleProgram, NumberRange, ProgramInputs
from chameleon_networks._source_files import SourceFiles, loaded_modules, read_sources, watched
from chameleon_networks._source_location import ImportedGraph

log = structlog.get_logger()

_INPUTS = "inputs"
"""Cache key of the ``ProgramInputs``."""

_TORCH_FRAMEWORKS = (
    inference.TORCH,
    inference.TORCH_COMPILE,
    inference.ONNXRUNTIME,
    inference.OPENVINO,
)
"""The frameworks that can run a torch network."""


class ProgramNetwork(ImportedNetwork):
    """A torch network, which TVM reads as a program of ``torch.export``."""

    preloads = ("chameleon_networks._importers.torch.lowering.importer", "torch._dynamo")
    _folder: tempfile.TemporaryDirectory[str] | None = None

    @abstractmethod
    def read_example(self) -> ExampleProgram:
        """Export the network with ``torch.export``, for its example inputs."""

    @cached_property
    def example(self) -> ExampleProgram:
        """The network as torch exported it for its example inputs (``read_example``)."""
        if isinstance(self.sibling, ProgramNetwork):
            return self.sibling.example
        return self.read_example()

    @cached_property
    def program(self) -> Any:
        """The ``ExportedProgram`` for the requested shapes, perhaps from another process."""
        return self._recalled("program") or self.example.in_shapes(self.shapes)

    @cached_property
    def _inputs(self) -> ProgramInputs:
        cached = None if self.kept is None else self.kept.fact(_INPUTS)
        if cached is None:
            return ProgramInputs.of(self.program)
        return cattrs.structure(cached[0], ProgramInputs)

    @property
    def half(self) -> str | None:
        return self._inputs.half

    def keep(self) -> None:
        super().keep()
        if self.kept is not None and self.kept.fact(_INPUTS) is None:
            facts, arrays = attrs.asdict(self._inputs), self.example_inputs
            self.kept.keep_fact(_INPUTS, facts, arrays)

    @property
    def float_ranges(self) -> Sequence[tuple[float, float] | None]:
        limits = [numbers.limits for numbers in self._inputs.ranges.values()]
        return [*limits[: len(limits) - len(self.state)], *(None for _ in self.state)]

    @cached_property
    def example_inputs(self) -> Arrays:
        kept = None if self.kept is None else self.kept.arrays(_INPUTS)
        return programs.example_arrays(self.program) if kept is None else kept

    @cached_property
    def float_program(self) -> Any:
        """The exported program to compile, which is converted to float32 if in half precision."""
        if self.half is None:
            return self.program
        program = self._recalled("float_program")
        if program is not None:
            return program
        log.info("half_precision_is_compiled_in_float32", network=self.half)
        return in_float32(self.program)

    def _recalled(self, name: str) -> Any:
        return programs.read_program(self.programs[name]) if name in self.programs else None

    @property
    def programs_folder(self) -> str:
        if self._folder is None:
            self._folder = temporary_folder()
        return self._folder.name

    def kept_programs(self) -> Mapping[str, str]:
        if self._folder is None:
            self.programs = self.save_programs(self.programs_folder)
        return self.programs

    def save_programs(self, folder: str) -> Mapping[str, str]:
        programs_by_name = {"program": self.program, "float_program": self.float_program}
        if self.half is None:
            del programs_by_name["float_program"]
        files = {name: str(Path(folder, f"{name}.pt2")) for name in programs_by_name}
        return {
            name: file
            for name, file in files.items()
            if programs.save_program(programs_by_name[name], file)
        }

    def read_ahead(self) -> None:
        _ = self.float_program

    def branch_extents(self, axes: Collection[tuple[str, int]], extents: range) -> set[int]:
        return programs.branch_extents(self.program, self.example.export, axes, extents)

    def read_graph(self) -> ImportedGraph:
        program = self.float_program
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            graph: ImportedGraph = _torch_importer().torch_graph(program)
        return graph

    def input_names(self) -> list[str]:
        return list(self._inputs.ranges)

    @property
    def returned(self) -> Any:
        return self._inputs.returned

    @property
    def state(self) -> tuple[str, ...]:
        return self._inputs.state

    def samples(self, rng: np.random.Generator) -> Arrays:
        samples = [_random_like(numbers, rng) for numbers in self._inputs.ranges.values()]
        if self.state:
            first, ranges = len(samples) - len(self.state), [*self._inputs.ranges.values()]
            samples[first:] = map(_random_state, ranges[first:], samples[first:])
        return samples if self.half is None else rounded(samples, self.half)

    @property
    def frameworks(self) -> tuple[str, ...]:
        others = inference.installed(*_TORCH_FRAMEWORKS)
        return others if self.half is None else (inference.TORCH_FLOAT32, *others)

    @property
    def exact(self) -> str | None:
        # Quantize and dequantize are computed in float32.
        return None if self.quantized else inference.TORCH_FLOAT64

    @property
    def left_out(self) -> Mapping[str, str]:
        return inference.left_out(*_TORCH_FRAMEWORKS)

    @property
    def forms(self) -> inference.NetworkForms:
        kept = next(iter(self.programs.values()), None)
        return inference.NetworkForms(
            program=lambda: self.float_program,
            onnx=lambda: inference.onnx_bytes(self.float_program),
            openvino=None if kept is None else Path(kept).with_name("openvino.xml"),
        )

    def precision_of(self, name: str) -> str:
        return (
            self.half or FLOAT32 if name in (inference.TORCH, inference.TORCH_COMPILE) else FLOAT32
        )

    def values(self, names: Sequence[str], batches: Iterable[Arrays]) -> Iterator[Arrays]:
        yield from _torch_importer().intermediate_values(self.float_program, names, batches)

    def framework(self, name: str, threads: int) -> inference.Network:
        if name in (inference.ONNXRUNTIME, inference.OPENVINO):
            return super().framework(name, threads)
        program = self.program
        if name == inference.TORCH_FLOAT32:
            program = self.float_program
        elif name == inference.TORCH_FLOAT64:
            program = in_float64(self.float_program)
        return inference.torch_network(
            program, compiled=name == inference.TORCH_COMPILE, threads=threads
        )


def _torch_importer() -> Any:
    from chameleon_networks._importers.torch.lowering import importer  # noqa: PLC0415 - needs TVM

    return importer


class BuiltinNetwork(ProgramNetwork):
    """A network that is written in this package, with random weights."""

    options: BuiltinOptions

    @property
    def origin(self) -> Any:
        return [self.options.network, self.options.batch, self.options.dtype]

    def read_example(self) -> ExampleProgram:
        return programs.builtin_program(
            self.options.network, self.options.batch, self.options.dtype
        )


class TorchNetwork(ProgramNetwork):
    """A user's network in PyTorch."""

    options: TorchOptions

    @cached_property
    def sources(self) -> SourceFiles:
        saved = Path(self.options.source)
        if self.sibling is not None or saved.suffix != ".pt2" or not saved.exists():
            return super().sources
        return read_sources([saved])

    @cached_property
    def origin(self) -> Any:
        # The dependencies of a user's function are only known after it was called.
        if not self.options.source.endswith(".pt2") or not self.sources:
            return None
        return next(iter(self.sources.values())).digest

    def read_example(self) -> ExampleProgram:
        source = self.options.source
        if source.endswith(".pt2"):
            return programs.load_saved(source)
        with watched(self.sources):
            example = programs.export_source(source)
        modules = read_sources(loaded_modules(source))
        self.sources.update(modules | self.sources)
        return example


class OnnxNetwork(ImportedNetwork):
    """A network in an ONNX file."""

    options: OnnxOptions

    @cached_property
    def sources(self) -> SourceFiles:
        if self.sibling is not None:
            return self.sibling.sources
        try:
            return read_sources(models.onnx_files(self.options.source))
        # Reading the network reports the problem of a file better.
        except Exception:  # noqa: BLE001
            return {}

    @cached_property
    def origin(self) -> Any:
        return [source.digest for source in self.sources.values()] or None

    def read_graph(self) -> ImportedGraph:
        return models.onnx_graph(self.options.source, self.shapes)

    def coverage(self) -> Sequence[NetworkResult.OperatorCoverage]:
        batches = {
            name: (1, *map(int, shape[1:]))
            for name, shape in self.facts.inputs.items()
            if [isinstance(extent, str) for extent in shape] == [True] + [False] * (len(shape) - 1)
            and name not in self.shapes
        }
        if not batches:
            return super().coverage()
        log.warning("open_batches_count_as_1", inputs=", ".join(batches))
        shapes = {**self.options.shapes, **batches}
        return OnnxNetwork(attrs.evolve(self.options, shapes=shapes)).coverage()

    def input_names(self) -> list[str]:
        return list(self.facts.inputs)

    @property
    def returned(self) -> Any:
        names = list(self.facts.outputs)
        return names[0] if len(names) == 1 else {"type": "Outputs", "keys": names, "parts": names}

    @cached_property
    def facts(self) -> models.OnnxFacts:
        """Facts about the network in the file, which do not depend on shapes."""
        if isinstance(self.sibling, OnnxNetwork):
            return self.sibling.facts
        return models.onnx_facts(self.options.source)

    @property
    def bounded_inputs(self) -> frozenset[str]:
        return frozenset(self.facts.ranges)

    @property
    def float_ranges(self) -> Sequence[tuple[float, float] | None]:
        kinds = [str(param.ty.dtype) for param in self.imported["main"].params]
        return [(-np.inf, np.inf) if kind.startswith("float") else None for kind in kinds]

    def samples(self, rng: np.random.Generator) -> Arrays:
        samples: list[NDArray[Any]] = []
        for name, (shape, kind) in self._input_types.items():
            if kind.kind not in "iu":
                samples.append(_random_like(NumberRange.of(np.ones(shape, kind)), rng))
                continue
            limits = np.iinfo(kind)
            is_byte = self.quantized and kind.name in {UINT8, INT8}
            default_range = (int(limits.min), int(limits.max)) if is_byte else (0, 1)
            least, most = self.facts.ranges.get(name, default_range)
            # A table may have more rows than a small integer can index.
            samples.append(rng.integers(least, min(most, limits.max), shape, kind, endpoint=True))
        return samples

    @cached_property
    def _input_types(self) -> Mapping[str, tuple[Sequence[int], np.dtype[Any]]]:
        """The shape and dtype of each input. The network is not read if its sibling was."""
        if isinstance(self.sibling, OnnxNetwork):
            types = self.sibling._input_types  # noqa: SLF001 - of the same class
            return {name: (self.shapes.get(name, own), kind) for name, (own, kind) in types.items()}
        return {
            name: ([int(extent) for extent in param.ty.shape], np.dtype(str(param.ty.dtype)))
            for name, param in zip(self.facts.inputs, self.imported["main"].params, strict=True)
        }

    @cached_property
    def frameworks(self) -> tuple[str, ...]:
        names = (inference.ONNXRUNTIME, *inference.installed(inference.OPENVINO))
        # The int8 kernels of onnxruntime may saturate sums of two products in 16 bits.
        return (inference.ONNXRUNTIME_FLOAT32, *names) if self.facts.is_quantized else names

    @property
    def references(self) -> tuple[str, ...]:
        first, *others = self.frameworks
        return (first, inference.ONNX_REFERENCE, *others)

    @property
    def arbiters(self) -> tuple[str, ...]:
        others = () if self.facts.is_quantized else (inference.ONNXRUNTIME_UNFUSED,)
        openvino = inference.installed(inference.OPENVINO)
        return (inference.ONNX_REFERENCE, *others, *openvino, inference.ONNX_IN_FLOAT64)

    @property
    def left_out(self) -> Mapping[str, str]:
        return inference.left_out(inference.OPENVINO)

    @property
    def forms(self) -> inference.NetworkForms:
        return inference.NetworkForms(
            program=None, onnx=lambda: self.options.source, shapes=self.shapes
        )

    def precision_of(self, name: str) -> str:
        quantized = inference.ONNXRUNTIME_FLOAT32 in self.frameworks
        return INT8 if quantized and name != inference.ONNXRUNTIME_FLOAT32 else FLOAT32

    def values(self, names: Sequence[str], batches: Iterable[Arrays]) -> Iterator[Arrays]:
        content = models.onnx_with_outputs(self.options.source, names)
        yield from map(inference.onnx_session(content, threads=1, fused=False), batches)

    def framework(self, name: str, threads: int) -> inference.Network:
        if name == inference.ONNX_REFERENCE:
            return inference.onnx_evaluator(self.options.source)
        if name == inference.ONNX_IN_FLOAT64:
            model = models.onnx_in_float64(self.options.source)
            return inference.onnx_evaluator(model, in_float64=True)
        if name == inference.ONNXRUNTIME_UNFUSED:
            return inference.onnx_session(self.options.source, threads=threads, fused=False)
        if name != inference.ONNXRUNTIME_FLOAT32:
            return super().framework(name, threads)
        content = models.onnx_as_qdq(self.options.source)
        return inference.onnx_session(content, threads=threads, fused=False)


_NETWORKS: Mapping[type[NetworkOptions], Callable[[Any], ImportedNetwork]] = {
    BuiltinOptions: BuiltinNetwork,
    TorchOptions: TorchNetwork,
    OnnxOptions: OnnxNetwork,
}


def network_of(options: NetworkOptions) -> ImportedNetwork:
    """Make the network that frontend options describe."""
    return _NETWORKS[type(options)](options)


def _random_state(initial: NumberRange, drawn: NDArray[Any]) -> NDArray[Any]:
    """Random numbers for a buffer that calls change, such as they may become in some calls."""
    if initial.least != initial.most or drawn.dtype.kind != "f":
        return drawn
    # A buffer of zeros may be a sum of squares, and one of ones a variance.
    return np.abs(drawn) if initial.least == 0 else np.full_like(drawn, initial.least)


def _random_like(example: NumberRange, rng: np.random.Generator) -> NDArray[Any]:
    """Random numbers with the shape, dtype and range of an example array."""
    least, most, kind = example.least, example.most, np.dtype(example.dtype)
    numbers: NDArray[Any]
    if example.mask is not None:
        numbers = rng.permutation(np.asarray(example.mask, kind))
    elif not np.issubdtype(kind, np.floating):
        drawn = np.uint64 if kind == np.uint64 else np.int64
        # Extremes are floats, which may round beyond the limits of 64 bits.
        low, high = max(np.iinfo(drawn).min, min(0, int(least))), max(0, int(most))
        high = min(np.iinfo(drawn).max, high)
        numbers = rng.integers(low, high, example.shape, drawn, endpoint=True)
    elif example.limits == (-np.inf, np.inf):
        numbers = rng.standard_normal(example.shape)
    else:
        numbers = rng.uniform(least, most, example.shape)
    return np.asarray(numbers).astype(kind)
