"""A torch program without complex numbers: each becomes a pair of real ones.

TVM has no complex types. Rotary embeddings written with ``view_as_complex`` (Su et al. 2021,
section 3.2.1), spectrograms, and networks that mix by Fourier transforms (Lee-Thorp et al. 2022)
have real inputs and outputs; between them complex numbers become their two parts.
"""

from __future__ import annotations

from operator import getitem
from typing import Any

import torch
from chameleon_core.errors import ConfigError
from chameleon_tvm.words import WAY_OUT
from torch.fx.node import map_aggregate, map_arg
from torch.fx.proxy import GraphAppendingTracer, Proxy

from chameleon_networks.importers.torch.lowering.complex_operators import (
    BY_PARTS,
    CONVERTERS,
    REAL,
    Value,
    by_parts,
    is_complex,
)
from chameleon_networks.importers.torch.lowering.origins import location_of
from chameleon_networks.importers.torch.lowering.pairs import Pair


def has_complex(program: Any) -> bool:
    """Whether anything in a program is complex.

    Args:
        program: a ``torch.export.ExportedProgram``.
    """
    return any(is_complex(node) for node in program.graph.nodes)


def without_complex(program: Any) -> Any:
    """The program with pairs of real numbers.

    Args:
        program: a ``torch.export.ExportedProgram`` in core operators. It is changed; shapes and
            types are noted in its graph again when it is decomposed once more.

    Raises:
        ConfigError: an input or output is complex, or an operator has no such form here.
    """
    # Decomposing hands on mappings of the user's program, which others run beside this one.
    program._state_dict = dict(program.state_dict)  # noqa: SLF001 - it cannot be given otherwise
    program._constants = dict(program.constants)  # noqa: SLF001
    rewriting = _Rewriting(program)
    for node in list(program.graph.nodes):
        rewriting.visit(node)
    program.graph.eliminate_dead_code()
    program.graph_module.recompile()
    return program


class _Tracer(GraphAppendingTracer):
    """Says of every node it makes which module and line it is for."""

    def __init__(self, graph: Any) -> None:
        super().__init__(graph)
        self.origin: Any = None

    def create_node(self, *arguments: Any, **keywords: Any) -> Any:
        made = super().create_node(*arguments, **keywords)
        known = self.origin.meta
        made.meta.update({key: known[key] for key in _ORIGIN if key in known})
        return made


_ORIGIN = ("nn_module_stack", "stack_trace")


class _Rewriting:
    """Puts nodes on pairs before those on complex numbers.

    Attributes:
        _made: of each node that was complex what stands for it.
    """

    def __init__(self, program: Any) -> None:
        self._program = program
        self._graph = program.graph
        self._tracer = _Tracer(program.graph)
        self._made: dict[Any, Pair | list[Pair]] = {}

    def visit(self, node: Any) -> None:
        self._tracer.origin = node
        touched = any(one in self._made for one in node.all_input_nodes)
        if node.op == "output":
            if touched:
                raise ConfigError(
                    "an output of the network is complex",
                    hint="Return torch.view_as_real(...) of it.",
                )
        elif node.op == "placeholder":
            if is_complex(node):
                self._stored_as_pairs(node)
                with self._graph.inserting_after(node):
                    self._made[node] = Pair.of_last_axis(Proxy(node, self._tracer))
        elif touched or is_complex(node):
            with self._graph.inserting_before(node):
                made = self._rewritten(node)
            if isinstance(made, Proxy):
                node.replace_all_uses_with(made.node)
            else:
                self._made[node] = made

    def _stored_as_pairs(self, node: Any) -> None:
        """Give a constant a last axis for its parts."""
        signature = self._program.graph_signature
        known = {
            **signature.inputs_to_parameters,
            **signature.inputs_to_buffers,
            **signature.inputs_to_lifted_tensor_constants,
        }
        if node.name not in known:
            raise ConfigError(
                f"the input {node.name} of the network is complex",
                hint="Give it torch.view_as_real(...) of it, and call view_as_complex inside.",
            )
        name = known[node.name]
        held = self._program.state_dict
        held = held if name in held else self._program.constants
        parts = torch.view_as_real(held[name].detach().resolve_conj()).clone()
        kept = isinstance(held[name], torch.nn.Parameter)
        held[name] = torch.nn.Parameter(parts, requires_grad=False) if kept else parts
        node.meta["val"] = torch.view_as_real(node.meta["val"])

    def _rewritten(self, node: Any) -> Value:
        if node.target is getitem:
            found = self._made[node.args[0]]
            assert isinstance(found, list)  # noqa: S101 - only parts of several have places
            return found[node.args[1]]
        name = str(getattr(node.target, "_schema", node.target)).split("::")[-1].split("(")[0]
        name = name.split(".")[0]
        arguments, keywords = (map_arg(one, self._value) for one in (node.args, node.kwargs))
        convert = CONVERTERS.get(name)
        if convert is not None:
            return convert(Proxy(node, self._tracer), *arguments, **_real_types(keywords))
        if name in BY_PARTS:
            return by_parts(Proxy(node, self._tracer), arguments, _real_types(keywords))
        raise ConfigError(
            f"{location_of(node).sentence} cannot be compiled: it is one of complex numbers",
            hint=WAY_OUT,
        )

    def _value(self, node: Any) -> Any:
        return self._made[node] if node in self._made else Proxy(node, self._tracer)


def _real_types(keywords: Any) -> Any:
    """Keywords with the types of parts in the place of complex ones."""
    return map_aggregate(
        keywords, lambda one: REAL.get(one, one) if isinstance(one, torch.dtype) else one
    )
