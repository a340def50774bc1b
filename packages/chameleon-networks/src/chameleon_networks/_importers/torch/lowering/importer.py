"""TVM's importer of torch programs, with more operators, and with messages that locate errors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from functools import partial
from operator import getitem
from typing import Any
from weakref import WeakKeyDictionary

import torch
from chameleon_core.plugin_api import Arrays, ConfigError
from chameleon_tvm.api import (
    BFLOAT16,
    WAY_OUT,
    first_line,
    tvm,  # imports TVM without torch, before the next import
)
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.utils import _pytree as pytree
from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter

from chameleon_networks import _source_location as source_location
from chameleon_networks._frameworks.inference import like
from chameleon_networks._graph.counted import (
    COUNTED_SIZE,
    CountedAxes,
    CountedSizeError,
    with_counts,
)
from chameleon_networks._graph.quantization import is_quantized, quantizes_activations
from chameleon_networks._graph.relax_utils import STATE_ATTRIBUTE, relax
from chameleon_networks._importers.torch.inference import state_of
from chameleon_networks._importers.torch.lowering import (
    arithmetic,
    images,
    indexing,
    quantized,
    recurrent,
    sorting,
)
from chameleon_networks._importers.torch.lowering.decompositions import (
    decompose,
    function_calls,
    is_scalar,
    reduces_scalar,
)
from chameleon_networks._importers.torch.lowering.torch_calls import Converter, TorchCall
from chameleon_networks._importers.torch.programs import input_tensors
from chameleon_networks._importers.unsupported_operators import (
    OperatorSurvey,
    UnsupportedNode,
    UnsupportedOperatorsError,
)
from chameleon_networks._source_location import ImportedGraph, SourceLocation

CONVERTERS = {
    **arithmetic.CONVERTERS,
    **images.CONVERTERS,
    **indexing.CONVERTERS,
    **quantized.CONVERTERS,
    **recurrent.CONVERTERS,
    **sorting.CONVERTERS,
}


_UPDATES = {torch.ops.aten.index_put.default, torch.ops.aten.slice_scatter.default}
"""Operators whose result is their first argument with some rows written."""

_DECOMPOSED: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
"""Programs in the operators that an importer can read. Rewriting takes seconds."""


def _decomposed(program: Any) -> Any:
    """The program in operators that an importer can read, rewritten once."""
    if program not in _DECOMPOSED:
        _DECOMPOSED[program] = decompose(program, supported_operators())
    return _DECOMPOSED[program]


def torch_graph(program: Any) -> ImportedGraph:
    """Read an exported program into Relax."""
    double = any(value.dtype == torch.float64 for value in program.state_dict.values())
    importer = _Importer(_IN_FLOAT32 if double else WAY_OUT)
    importer.refuse_sizes(program)
    try:
        module = importer.from_exported_program(
            _decomposed(program),
            keep_params_as_input=False,
            unwrap_unit_return_tuple=False,
            no_bind_return_tuple=False,
            custom_convert_map={name: partial(_convert, item) for name, item in CONVERTERS.items()},
        )
        importer.survey.check()
    except UnsupportedOperatorsError:
        raise
    except ConfigError as error:
        if double:
            raise ConfigError(str(error), hint=_IN_FLOAT32) from error
        raise
    except Exception as error:  # torch and TVM raise errors of many classes
        importer.survey.check()
        hint = "Try torch.export.export(...).run_decompositions() by hand."
        raise ConfigError(
            f"the compiler cannot read the network: {first_line(error)}",
            hint=_IN_FLOAT32 if double else hint,
        ) from error
    if state := state_of(program):
        module.update_func(
            module.get_global_var("main"), module["main"].with_attr(STATE_ATTRIBUTE, len(state))
        )
    module = with_counts(module)
    return ImportedGraph(
        module=module,
        locations=importer.locations,
        is_quantized=is_quantized(module),
        is_rounded=quantizes_activations(module),
        operators=importer.survey.operators,
    )


def intermediate_values(
    program: Any, names: Sequence[str], batches: Iterable[Arrays]
) -> Iterator[Arrays]:
    """Yield intermediate values of the program that ``torch_graph`` reads, computed with torch."""
    decomposed = _decomposed(program)
    parameters = {**decomposed.state_dict, **decomposed.constants}
    module = deepcopy(decomposed.graph_module)
    nodes = {node.name: node for node in module.graph.nodes}
    module.graph.output_node().args = ([nodes[name] for name in names],)
    module.recompile()
    for inputs in batches:
        values = iter(map(like, input_tensors(program).values(), map(torch.from_numpy, inputs)))
        arguments = [
            parameters[spec.target] if spec.target in parameters else next(values)
            for spec in decomposed.graph_signature.input_specs
        ]
        with torch.no_grad():
            outputs = module(*arguments)
        # Torch returns the statistics of a normalization, too.
        tensors = [output[0] if isinstance(output, tuple) else output for output in outputs]
        yield [tensor.numpy() for tensor in tensors]


def supported_operators() -> frozenset[str]:
    """Names of the operators that TVM's importer and Chameleon's converters read."""
    return frozenset({*ExportedProgramImporter().convert_map, *CONVERTERS})


_IN_FLOAT32 = "Its weights are torch.float64; return the module in float32 (`.float()`)."


def _convert(convert: Converter, node: Any, importer: Any) -> Any:
    """Convert a node with a converter of Chameleon, called with the arguments of TVM's importer."""
    return convert(TorchCall(node, importer))


def _unsupported_result(node: Any) -> str:
    """The reason why TVM cannot compute a node's result; empty if TVM can."""
    value = node.meta.get("val")
    if free_unbacked_symbols(value):
        return "the shape of its result depends on its numbers"
    # TVM's compiler crashes at some bfloat16 operators.
    if getattr(value, "dtype", None) is getattr(torch, BFLOAT16):
        return f"it gives {BFLOAT16}, which the compiler does not compute"
    # TVM's importer would compute it in float32.
    if node.target is torch.ops.aten.convolution.default and value.dtype is torch.float64:
        return "it is in float64, in which the compiler does not compute convolutions"
    return ""


def _difference(result: Any, value: Any) -> str:
    """The word for a difference of an importer's result from torch's; empty if none is known."""
    kind = getattr(result, "ty", None)
    if not isinstance(kind, relax.TensorType) or not isinstance(value, torch.Tensor):
        return ""
    if str(kind.dtype).startswith(("float", "bfloat")) != value.is_floating_point():
        return "dtype"  # TVM's convolutions of integers give float32
    return "" if _has_shape(kind.shape, value) else "shape"


def _has_shape(shape: Any, value: Any) -> bool:
    if not isinstance(shape, relax.ShapeExpr):
        return True
    is_static = all(isinstance(extent, tvm.tirx.IntImm) for extent in shape)
    return not is_static or [int(extent) for extent in shape] == list(value.shape)


def _convert_as_vectors(convert: Callable[[], Any], node: Any, importer: Any) -> Any:
    """Convert a node with each scalar tensor replaced by a vector of one element."""
    emit, saved_env = importer.block_builder.emit, dict(importer.env)
    for argument in node.all_input_nodes:
        if is_scalar(argument):
            importer.env[argument] = emit(relax.op.reshape(importer.env[argument], [1]))
    try:
        result = convert()
    finally:
        importer.env.update(saved_env)
    values = node.meta["val"]
    if not isinstance(values, list | tuple):
        return emit(relax.op.reshape(result, list(values.shape)))
    parts = result if isinstance(result, list | tuple) else [result[n] for n in range(len(values))]
    shaped = [
        emit(relax.op.reshape(emit(part), list(value.shape)))
        for part, value in zip(parts, values, strict=True)
    ]
    return emit(relax.Tuple(shaped))


class _Importer(ExportedProgramImporter):
    """Notes the node that each variable comes from, and continues after unsupported nodes."""

    def __init__(self, hint: str) -> None:
        super().__init__()
        self._hint = hint
        self.locations: dict[str, SourceLocation] = {}
        self.survey = OperatorSurvey()
        self._state: frozenset[str] = frozenset()
        self._counted: CountedAxes | None = None

    def refuse_sizes(self, program: Any) -> None:
        """Raise an error if a program computes with sizes that depend on values."""
        reason = f"{COUNTED_SIZE}, and it needs this size"
        self._refuse(dict.fromkeys(sorting.readers_of_sizes(program), reason))
        self.survey.check()

    def is_state(self, node: Any) -> bool:
        """Whether a node is a buffer that calls change, perhaps with rows that were written."""
        while node.target in _UPDATES:
            node = node.args[0]
        return node.name in self._state

    def create_input_vars(self, exported_program: Any) -> Any:
        """See the base class. Reports missing operators before problems with inputs."""
        if state := state_of(exported_program):
            inputs = exported_program.graph_signature.user_inputs
            self._state = frozenset(inputs[-len(state) :])
        calls = function_calls(exported_program)
        self.survey.operators.update(
            source_location.operator_of(node) for node in calls if node.target is not getitem
        )
        self._refuse({node: reason for node in calls if (reason := _unsupported_result(node))})
        has_unsupported_result = bool(self.survey.unsupported)
        unsupported_calls = [node for node in calls if node.target.__name__ not in self.convert_map]
        self._refuse(dict.fromkeys(unsupported_calls, "the compiler has no such operator"))
        if has_unsupported_result:
            self.survey.check()
        self.convert_map.update({node.target.__name__: self.zeros for node in unsupported_calls})
        return super().create_input_vars(exported_program)

    def _refuse(self, reasons: Mapping[Any, str]) -> None:
        for node, reason in reasons.items():
            operator = source_location.operator_of(node)
            sentence = source_location.location_of(node).sentence
            unsupported = UnsupportedNode(
                operator=operator, sentence=sentence, reason=reason, hint=self._hint
            )
            self.survey.unsupported.append(unsupported)

    def update_convert_map(self, custom_convert_map: Mapping[str, Any]) -> None:
        """See the base class."""
        converters: dict[Any, Any] = {**self.create_convert_map(), **custom_convert_map}
        self.convert_map = {name: self._with_location(item) for name, item in converters.items()}

    def _with_location(self, convert: Callable[..., Any]) -> Callable[..., Any]:
        def convert_with_location(node: Any, *importer: Any) -> Any:
            converted = partial(convert, node, *importer)
            try:
                result = (
                    _convert_as_vectors(converted, node, self)
                    if reduces_scalar(node)
                    else converted()
                )
            except ConfigError:
                raise
            except Exception as error:  # noqa: BLE001 - TVM's converters raise whatever comes
                self._refuse({node: first_line(error)})
                return self.zeros(node)
            if isinstance(result, relax.Call):
                # TVM's importer needs the shapes of its results, so bind them.
                result = self.block_builder.emit(result)
            if difference := _difference(result, node.meta.get("val")):
                self._refuse({node: f"the compiler gives it another {difference} than torch"})
                return self.zeros(node)
            results = result if isinstance(result, list | tuple) else [result]
            if reason := self._problem_of_sizes(results):
                self._refuse({node: reason})
                return self.zeros(node)
            for item in results:
                if isinstance(item, relax.Var):
                    self.locations.setdefault(str(item.name), source_location.location_of(node))
            return result

        return convert_with_location

    @property
    def counted(self) -> CountedAxes:
        """Finds out which axes have sizes that are known only when the network runs."""
        if self._counted is None:
            self._counted = CountedAxes.in_builder(self.block_builder)
        return self._counted

    def _problem_of_sizes(self, results: Iterable[Any]) -> str:
        """Why a node cannot have results of sizes that depend on values; empty if it can."""
        if self._counted is None:
            return ""
        try:
            for item in results:
                self._counted.of(item)
        except CountedSizeError as error:
            return str(error)
        return ""

    def zeros(self, node: Any) -> Any:
        """Zeros in place of an unsupported operator's result, to find all such operators."""
        return pytree.tree_map_only(
            torch.Tensor,
            lambda tensor: self.block_builder.emit(
                relax.op.zeros(list(tensor.shape), str(tensor.dtype).removeprefix("torch."))
            ),
            node.meta["val"],
        )

    def _cond(self, node: Any) -> list[Any]:
        """``torch.cond``: both branches run, and the network chooses between their outputs."""
        condition, *branches, operands = node.args
        chosen = self.block_builder.emit(relax.op.reshape(self.env[condition], []))
        outputs = []
        for branch in branches:
            nodes = self.env[branch].graph.nodes
            self.env.update(zip(nodes, (self.env[item] for item in operands), strict=False))
            converters = frozenset(CONVERTERS)
            outputs.append(self._translate_fx_graph(self.env[branch], nodes, {}, converters))
        return [
            self.block_builder.emit(relax.op.where(chosen, *branch_outputs))
            for branch_outputs in zip(*outputs, strict=True)
        ]

    @staticmethod
    def _has_cond_op(_nodes: Any) -> bool:
        """Whether a Relax function needs branches: never, because ``_cond`` computes both."""
        return False

    def _check_unsupported_func_type(self, nodes: Any) -> None:
        """Do nothing, since ``create_input_vars`` has already checked the operators."""
