"""Exports graphs of ``torch.compile``, and imports them where a run of this machine finds them.

Only graphs without a network in the cache need this module, whose imports take long.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import structlog
import torch
from chameleon_core.api import words
from chameleon_core.plugin_api import ConfigError
from chameleon_tvm.api import first_line
from torch import Tensor, fx, nn
from torch._dynamo.convert_frame import compile_lock
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind
from torch.fx.experimental.proxy_tensor import make_fx

from chameleon_networks._backends import FallbackError
from chameleon_networks._evaluation.network_cache import ReferenceOutputs, cache_of
from chameleon_networks._evaluation.special_inputs import answered, special_inputs
from chameleon_networks._evaluation.verify import samples_of
from chameleon_networks._frameworks.inference import TORCH, torch_inference
from chameleon_networks._importers.options import TorchOptions
from chameleon_networks._importers.sources import TorchNetwork
from chameleon_networks._importers.torch import inference
from chameleon_networks._importers.torch.lowering.decompositions import (
    decompose_early,
    function_calls,
)

log = structlog.get_logger()

_STRIDED = torch.ops.aten.as_strided.default
_OFFSET = 3
"""The place of the offset among the arguments of ``as_strided``."""


class _Frozen(nn.Module):
    """A graph whose weights are constants."""

    def __init__(
        self, graph: fx.GraphModule, arguments: Sequence[Tensor], weights: Collection[int]
    ) -> None:
        super().__init__()
        self.graph = graph
        self.names = [f"weight_{i}" if i in weights else "" for i in range(len(arguments))]
        for name, value in zip(self.names, arguments, strict=True):
            if name:
                self.register_buffer(name, value.detach())

    def forward(self, *inputs: Tensor) -> Any:
        """Its outputs."""
        rest = iter(inputs)
        return self.graph(*(getattr(self, name) if name else next(rest) for name in self.names))


@contextlib.contextmanager
def _tracing() -> Iterator[None]:
    """Trace in this thread, while other threads see torch's global flag of a compilation."""
    # While torch exports a graph, or traces it without the flag of a compilation, torch.compile
    # does nothing. Calls of compiled functions in other threads may then raise an error.
    compiler: Any = torch.compiler
    own = threading.get_ident()
    with compile_lock:
        exporting = getattr(compiler, "is_exporting", None)  # older versions of torch have none
        compiling = compiler._is_compiling_flag  # noqa: SLF001 - torch documents no other name
        if exporting is not None:
            compiler.is_exporting = lambda: threading.get_ident() == own and exporting()
        compiler._is_compiling_flag = True  # noqa: SLF001
        try:
            yield
        finally:
            compiler._is_compiling_flag = compiling  # noqa: SLF001
            if exporting is not None:
                compiler.is_exporting = exporting


def in_operators(graph: fx.GraphModule, arguments: Sequence[Tensor]) -> fx.GraphModule:
    """Trace the operators of a graph, also those in functions that torch calls as a whole."""
    try:
        with _tracing():
            return make_fx(graph, tracing_mode="fake")(*arguments)
    except Exception as error:
        raise FallbackError(f"torch cannot trace it: {first_line(error)}") from error


def exported(
    graph: fx.GraphModule, arguments: Sequence[Tensor], weights: Collection[int]
) -> ExportedProgram:
    """Export a graph as a torch program, and check that its calls do nothing but return tensors."""
    inputs = tuple(value.detach() for i, value in enumerate(arguments) if i not in weights)
    if not inputs:
        raise FallbackError("it has no inputs")
    try:
        with _tracing():
            program = torch.export.export(_Frozen(graph, arguments, weights), inputs, strict=False)
            # Changes in place of arguments and weights become outputs of their own.
            core = decompose_early(program)
    except Exception as error:
        raise FallbackError(f"torch cannot export it: {first_line(error)}") from error
    outputs = core.graph_signature.output_specs
    # Tokens order checks, such as that of a matrix to invert.
    if any(spec.kind not in {OutputKind.USER_OUTPUT, OutputKind.TOKEN} for spec in outputs):
        raise FallbackError("a call changes a tensor in place")
    for node in (*function_calls(program), *function_calls(core)):
        if inference.draws_random_numbers(node):
            raise FallbackError(f"it draws random numbers ({node.target})")
    program.graph.eliminate_dead_code()  # torch cannot load a program with an unused ``item``
    for node in function_calls(program):
        offset = len(node.args) > _OFFSET or "storage_offset" in node.kwargs
        if node.target is _STRIDED and offset:
            raise FallbackError(
                "as_strided reads from an offset in memory, which a call may change"
            )
    return program


def kept_program(file: Path, program: ExportedProgram) -> Callable[[], None] | None:
    """Keep the graph of an exported program, and torch's answers, where a run looks for them."""
    network = TorchNetwork(TorchOptions(source=str(file), compare=False))
    vars(network)["program"] = program
    network.kept = kept = cache_of(network)
    assert kept is not None  # noqa: S101 - networks of files have a cache
    try:
        with _tracing():
            network.keep()
        samples, special = samples_of(network.samples), special_inputs(network)
        run = torch_inference(program.module(), program)
        answers = ReferenceOutputs(
            reference=TORCH,
            outputs=[run(inputs) for inputs in samples],
            special=answered(run, special),
        )
        if all(np.isfinite(array).all() for outputs in answers.outputs for array in outputs):
            kept.store_outputs(answers, samples, special)
    except ConfigError as error:
        kept.forget()
        raise FallbackError(words.in_one_line(error)) from error
    except Exception as error:  # noqa: BLE001 - the run may succeed, or raises the same error
        log.info("graph_not_kept", reason=words.in_one_line(error))
        kept.forget()
        return None
    return kept.forget
