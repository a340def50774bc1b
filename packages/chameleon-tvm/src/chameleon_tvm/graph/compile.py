"""A prepared network with its tuned kernels, compiled to a call sequence or Relax bytecode."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
import structlog

from chameleon_tvm.graph.chains import Chain
from chameleon_tvm.graph.constants import array_of
from chameleon_tvm.graph.defaults import OURS, TUNED, with_default_schedules
from chameleon_tvm.graph.kernels import ChainKernel, Kernels
from chameleon_tvm.graph.loop_tasks import TunedLoops
from chameleon_tvm.graph.moves import shape_of
from chameleon_tvm.graph.relaxed import relax, tvm
from chameleon_tvm.graph.sequence.calls import CallSequence, NotStatic, sequence_of
from chameleon_tvm.graph.sequence.library import SequenceExecutable
from chameleon_tvm.graph.sequence.marks import settled, with_marks
from chameleon_tvm.graph.sequence.variants import with_variants
from chameleon_tvm.graph.sequence.views import with_views
from chameleon_tvm.lowering import PLAIN_LOOPS
from chameleon_tvm.quick_tvm import tirx
from chameleon_tvm.spaces.loops.lowered import LANES, loops_of
from chameleon_tvm.spaces.template.emit import with_shapes
from chameleon_tvm.targets import tvm_target

log = structlog.get_logger()

_PLAIN = "chameleon.plain_loops"
_PIPELINE = "chameleon-network"
_OPAQUE = 8
"""``OpPatternKind``: nothing may be fused with it."""


@attrs.frozen(kw_only=True, eq=False)
class CompiledNetwork:
    """A network that can be written into a folder.

    Attributes:
        executable: has ``export_library``.
        virtual_machine: why Relax's virtual machine runs it; None where nothing has to.
        functions: of its kernels before they were scheduled, by the kernels' names.
    """

    executable: Any
    virtual_machine: str | None = None
    functions: Mapping[str, Any] = attrs.field(factory=dict)


def compiled(
    module: Any, chains: Sequence[Chain], kernels: Kernels, target: str
) -> CompiledNetwork:
    """The network for a target.

    Args:
        module: what ``prepared`` returned.
        chains: its chains.
        kernels: those that are tuned; chains without one are compiled as TVM would.
        target: the resolved target.
    """
    resolved = tvm_target(target)
    with (
        resolved,
        tvm.transform.PassContext(opt_level=3, config={"tirx.disable_assert": True}),
    ):
        module = _fused(with_kernels(module, chains, kernels.of))
        try:
            return _call_sequence(module, target, kernels.loops)
        except NotStatic as reason:
            log.info("network_needs_the_virtual_machine", because=str(reason))
            loops = kernels.loops
            module = with_default_schedules(module, target, lambda _, one: loops.plan(one))
            executable = relax.build(module, resolved, tir_pipeline=_PIPELINE)
            return CompiledNetwork(executable=executable, virtual_machine=str(reason))


def fused_functions(module: Any, chains: Sequence[Chain], target: str) -> list[tuple[Any, int]]:
    """What is computed beside the chains' kernels: functions, and how often each is called.

    Args:
        module: what ``prepared`` returned.
        chains: its chains.
        target: the resolved target.
    """
    with tvm_target(target), tvm.transform.PassContext(opt_level=3):
        fused = _fused(with_kernels(module, chains, _placeholder))
    calls: Counter[str] = Counter()

    def visit(expression: Any) -> None:
        if isinstance(expression, relax.Call):
            calls.update(
                str(one.name_hint) for one in expression.args if isinstance(one, tvm.ir.GlobalVar)
            )

    relax.analysis.post_order_visit(fused["main"], visit)
    return [
        (function, calls[str(variable.name_hint)])
        for variable, function in fused.functions_items()
        if isinstance(function, tirx.PrimFunc) and OURS not in (function.attrs or {})
    ]


def _placeholder(chain: Chain) -> ChainKernel:
    """A kernel that computes nothing, for looking at what is around it."""
    shapes = [*(shape_of(one) for one in chain.inputs), shape_of(chain.last)]
    buffers = [
        tirx.decl_buffer(list(shape), "float32", f"x{place}") for place, shape in enumerate(shapes)
    ]
    function = tirx.PrimFunc(buffers, tirx.Evaluate(0)).with_attr("tirx.noalias", True)
    return ChainKernel(
        task="placeholder",
        function=function,
        arguments=(None,) * len(chain.inputs),
        plain_loops=True,
    )


def _fused(module: Any) -> Any:
    """The network as calls of functions, each of several operators where they can be fused."""
    passes = relax.transform
    for one in (
        with_marks,
        passes.LegalizeOps(),
        passes.AnnotateTIROpPattern(),
        settled,
        passes.FuseOps(),
        passes.FuseTIR(),
        passes.DeadCodeElimination(),
        relax.backend.DispatchSampling(),
        relax.backend.DispatchSortScan(),
        passes.LegalizeOps(),
        passes.RewriteDataflowReshape(),
        passes.DeadCodeElimination(),
    ):
        module = one(module)
    return module


def _call_sequence(module: Any, target: str, loops: TunedLoops) -> CompiledNetwork:
    """The network as calls of kernels.

    Raises:
        NotStatic: it is more than that.
    """
    sequence = sequence_of(module)
    functions = {call.kernel: module[call.kernel] for call in sequence.calls}
    sequence, functions = with_views(sequence, functions)
    sequence, functions = _named_after_tasks(sequence, functions, loops)
    sequence, placed = with_variants(sequence, functions)
    whole = {call.symbol: functions[call.kernel] for call in sequence.calls}
    named = {name: one.with_attr("global_symbol", name) for name, one in placed.items()}
    # Strides of views decide on vectors, so that schedules come last.
    kernels = with_default_schedules(
        tvm.IRModule(named), target, lambda name, _: loops.plan(whole[name])
    )
    library = tvm.compile(kernels, target=tvm_target(target), tir_pipeline=_PIPELINE)
    executable = SequenceExecutable(kernels=library, sequence=sequence)
    return CompiledNetwork(executable=executable, functions=whole)


def _named_after_tasks(
    sequence: CallSequence, functions: Mapping[str, Any], loops: TunedLoops
) -> tuple[CallSequence, dict[str, Any]]:
    """The sequence with tuned functions of loops called as tuned kernels are."""
    names = {name: loops.task_of(one) for name, one in functions.items()}
    renamed = {name: TUNED + task if task else name for name, task in names.items()}
    calls = [
        attrs.evolve(call, kernel=renamed[call.kernel], symbol=renamed[call.kernel])
        for call in sequence.calls
    ]
    made = {renamed[name]: function for name, function in functions.items()}
    return attrs.evolve(sequence, calls=tuple(calls)), made


def untuned(module: Any, target: str) -> Any:
    """A ``relax.Executable`` of the network as TVM compiles it without a tuner.

    Args:
        module: the network as it was imported, or prepared.
        target: the resolved target.
    """
    resolved = tvm_target(target)
    with resolved, tvm.transform.PassContext(opt_level=3):
        return relax.build(relax.get_pipeline("zero")(module), resolved)


def with_kernels(
    module: Any,
    chains: Sequence[Chain],
    kernel_of: Callable[[Chain], ChainKernel | None],
    *,
    reshape: bool = False,
) -> Any:
    """The network with calls of kernels in the places of chains.

    Args:
        module: what ``prepared`` returned.
        chains: its chains.
        kernel_of: the kernel of a chain, or None where the chain is to stay.
        reshape: reshape the graph's arrays for the kernels, rather than the kernels' parameters.
    """
    found = {chain.last: (chain, kernel_of(chain)) for chain in chains}
    placed = {last: pair for last, pair in found.items() if pair[1] is not None}
    placer = _Placer(module, placed, reshape=reshape)
    variable = module.get_global_var("main")
    placer.builder_.update_func(variable, placer.visit_expr(module["main"]))
    return relax.transform.DeadCodeElimination()(placer.builder_.get())


@relax.expr_functor.mutator
class _Placer(relax.PyExprMutator):
    """Puts a call of the kernel where a chain's last operator is.

    There, not at the chain's first: the residual may be defined after the convolution.
    """

    def __init__(self, module: Any, found: dict[Any, tuple[Chain, Any]], *, reshape: bool) -> None:
        super().__init__(module)
        self._found = found
        self._reshape = reshape
        self._functions: dict[Any, Any] = {}

    def visit_var_binding_(self, binding: Any) -> None:
        if binding.var not in self._found:
            super().visit_var_binding_(binding)
            return
        chain, kernel = self._found[binding.var]
        inputs = iter(chain.inputs)
        arguments: list[Any] = []
        for constant in kernel.arguments:
            if constant is None:
                argument = self.visit_expr(next(inputs))
                # A chain may ask for a value that the graph does not have yet.
                computed = isinstance(argument, relax.Call)
                arguments.append(self.builder_.emit(argument) if computed else argument)
            else:
                arguments.append(relax.const(np.ascontiguousarray(constant)))
        shape = shape_of(binding.var)
        if self._reshape:
            *inside, out = [[int(e) for e in one.shape] for one in kernel.function.params]
            arguments = [
                argument if list(shape_of(argument)) == wanted else self._reshaped(argument, wanted)
                for argument, wanted in zip(arguments, inside, strict=True)
            ]
        else:
            out = list(shape)
        call = relax.call_tir(
            self._function(kernel, arguments, out),
            arguments,
            relax.TensorType(out, str(binding.var.ty.dtype)),
        )
        if out != list(shape):
            call = relax.op.reshape(self.builder_.emit(call), list(shape))
        if isinstance(binding.var, relax.DataflowVar):
            made = self.builder_.emit(call)
        else:
            made = self.builder_.emit_output(call)
        self.set_var_remap(binding.var, made)

    def _reshaped(self, argument: Any, shape: Sequence[int]) -> Any:
        if isinstance(argument, tvm.ir.GenericConst):
            return relax.const(array_of(argument).reshape(shape))
        return self.builder_.emit(relax.op.reshape(argument, list(shape)))

    def _function(self, kernel: ChainKernel, arguments: Sequence[Any], out: Sequence[int]) -> Any:
        """The kernel's function in the module; occurrences of one shape share it."""
        shapes = (*(shape_of(argument) for argument in arguments), tuple(out))
        if (kernel.task, shapes) not in self._functions:
            function = _shaped(kernel.function, shapes).without_attr("global_symbol")
            function = function.with_attr("op_pattern", _OPAQUE).with_attr(OURS, kernel.task)
            if kernel.plain_loops:
                function = _in_block(function).with_attr(_PLAIN, 1)
            variable = self.builder_.add_func(function, TUNED + kernel.task)
            self._functions[kernel.task, shapes] = variable
        return self._functions[kernel.task, shapes]


def _shaped(function: Any, shapes: Sequence[Sequence[int]]) -> Any:
    """The function with parameters of the graph's shapes."""
    names = [str(parameter.name) for parameter in function.params]
    made = with_shapes(function, dict(zip(names, shapes, strict=True)))
    return made.with_attrs(dict(function.attrs))


def _in_block(function: Any) -> Any:
    """The function in a block of its own, as ``RewriteDataflowReshape`` wants all of one input."""
    block = tvm.s_tir.SBlock([], [], [], "root", function.body)
    return function.with_body(tvm.s_tir.SBlockRealize([], True, block))


def _as_loops(function: Any) -> Any:
    """A function that is loops in a block of its own, or becomes loops, as loops alone."""
    if LANES in (function.attrs or {}):
        return loops_of(function)
    return function.with_body(function.body.block.body)


def _network_pipeline() -> tuple[Any, Any, Any]:
    """The short way for functions that are loops or become it, TVM's default for all others."""
    plain, host, device = tirx.get_tir_pipeline(PLAIN_LOOPS)
    usual, _, _ = tirx.get_tir_pipeline("default")

    def both(module: Any, _context: Any) -> Any:
        marked = {
            variable: _as_loops(function)
            for variable, function in module.functions_items()
            if any(name in (function.attrs or {}) for name in (_PLAIN, LANES))
        }
        others = {
            variable: function
            for variable, function in module.functions_items()
            if variable not in marked
        }
        lowered = plain(tvm.IRModule(marked, attrs=module.attrs))
        if others:
            lowered.update(usual(tvm.IRModule(others, attrs=module.attrs)))
        return lowered

    network = tvm.transform.module_pass(both, opt_level=0, name="ChameleonNetwork")
    return network, host, device


tirx.register_tir_pipeline(_PIPELINE, _network_pipeline)
