"""Compiles a prepared network with its tuned kernels, to kernel calls or to TVM's bytecode."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import attrs
import chameleon_tvm
import structlog
from chameleon_core.plugin_api import ConfigError
from chameleon_system.api import (
    cache_key,
    cache_path,
    read_cached_bytes,
    usable_cores,
    write_cached_bytes,
)
from chameleon_tvm.api import (
    INT8,
    UNCHECKED,
    hide_arithmetic,
    open_axes,
    permissions_of,
    structural_hash,
    structural_map,
    symbol_of,
    te,
    tirx,
    tvm_target,
    with_initial_extrema,
)

from chameleon_networks._compile.default_schedules import (
    TASK_ATTRIBUTE,
    apply_default_schedules,
    is_scheduled,
)
from chameleon_networks._compile.elementwise import ELEMENTWISE
from chameleon_networks._compile.insert_kernels import insert_kernels
from chameleon_networks._compile.kernels import Kernels, OperatorKernel
from chameleon_networks._compile.loop_tasks import TunedLoops
from chameleon_networks._compile.network_pipeline import PIPELINE
from chameleon_networks._compile.normalizations import NORMALIZATIONS
from chameleon_networks._compile.open_dimension import (
    OpenDimension,
    OpenFunction,
    end_loops,
)
from chameleon_networks._compile.open_layouts import NotOpenError
from chameleon_networks._compile.scans import lower_scans
from chameleon_networks._compile.sequence.buffer_specialization import specialize_buffers
from chameleon_networks._compile.sequence.calls import (
    Call,
    CallSequence,
    NotStaticError,
    read_call_sequence,
)
from chameleon_networks._compile.sequence.channel_gather import gather_channels
from chameleon_networks._compile.sequence.copy_elision import elide_copies
from chameleon_networks._compile.sequence.library import (
    OBJECT_CACHE,
    SequenceExecutable,
    archive_of,
    object_files,
    parallel_extents,
)
from chameleon_networks._compile.sequence.state import place_state
from chameleon_networks._compile.sequence.view_candidates import (
    mark_view_candidates,
    select_view_candidates,
)
from chameleon_networks._compile.sorts import SORT_LEGALIZATIONS, lower_sorts
from chameleon_networks._compile.sums import widen_accumulators
from chameleon_networks._graph.fusion_groups import FusionGroup
from chameleon_networks._graph.relax_utils import relax, tvm

log = structlog.get_logger()

_PARTS_PER_CORE = 2
"""Parts in which a network's functions are compiled, so that cores end at about the same time."""

_DIGEST_BYTES = 16

_MIN_PART = 4
"""Functions of a part. Each part costs TVM as much as half of a small function."""


@attrs.frozen(kw_only=True, eq=False)
class CompiledNetwork:
    """A compiled network that can be written into a folder.

    Attributes:
        executable: An object with a method ``export_library``, which writes the network as a
            library.
        virtual_machine: The reason why TVM's virtual machine must run the network, or None.
        functions: The functions of the kernels before they were scheduled, by kernel name.
        unscheduled: Names of the kernels for which Chameleon has no schedule. TVM runs their loops
            on one thread.
        permissions: Permissions that a process must request from the operating system before it
            runs the network, such as AMX.
        is_open: Whether a call may compute a part of the open dimension.
    """

    executable: Any
    virtual_machine: str | None = None
    functions: Mapping[str, Any] = attrs.field(factory=dict)
    unscheduled: frozenset[str] = frozenset()
    permissions: frozenset[str] = frozenset()
    is_open: bool = False

    @property
    def facts(self) -> Mapping[str, Any]:
        """The facts about the code in the manifest of a network's folder, as JSON values."""
        permissions = sorted(self.permissions)
        return {
            "virtual_machine": self.virtual_machine,
            **({"permissions": permissions} if permissions else {}),
            **({"is_open": True} if self.is_open else {}),
        }


def compile_network(
    module: Any,
    fusions: Sequence[FusionGroup],
    kernels: Kernels,
    target: str,
    *,
    dimension: OpenDimension | None = None,
    wait: bool = True,
) -> CompiledNetwork:
    """Compile a network to a call sequence, or to bytecode if it is not static.

    With ``dimension``, calls may compute a part of this dimension.
    """

    def kernel_of(fusion: FusionGroup) -> OperatorKernel | None:
        axes = open_axes.OpenAxes() if dimension is None else dimension.axes_of(fusion)
        with open_axes.with_open_axes(axes):
            return kernels.of(fusion)

    # With ``wait=False``, threads still compile, and writing the network raises their errors.
    resolved = tvm_target(target)
    with resolved, tvm.transform.PassContext(opt_level=3, config=UNCHECKED):
        module = lower_and_fuse(insert_kernels(module, fusions, kernel_of))
        needed = [permissions_of(function) for _, function in module.functions_items()]
        permissions = frozenset().union(*needed)
        try:
            network = _call_sequence(module, target, kernels.loops, dimension, wait=wait)
            return attrs.evolve(network, permissions=permissions)
        except NotStaticError as reason:
            log.info("network_needs_the_virtual_machine", reason=str(reason))
            executable = compile_bytecode(module, target, kernels.loops)
            return CompiledNetwork(
                executable=executable, virtual_machine=str(reason), permissions=permissions
            )


def compile_bytecode(module: Any, target: str, loops: TunedLoops) -> Any:
    """Compile a network to a ``relax.Executable``, which TVM's virtual machine runs."""
    module = apply_default_schedules(module, target, lambda _, function: loops.plan(function))
    main = _WithoutEmptyConstants(module).visit_expr(module["main"])
    module.update_func(module.get_global_var("main"), main)
    return relax.build(module, tvm_target(target), tir_pipeline=PIPELINE)


@relax.expr_functor.mutator
class _WithoutEmptyConstants(relax.PyExprMutator):
    """Allocates empty tensors instead of constants, which TVM cannot load from a file."""

    def visit_generic_const_(self, constant: Any) -> Any:
        if 0 not in map(int, getattr(constant.ty, "shape", ())):
            return constant
        made = relax.op.builtin.alloc_tensor(constant.ty.shape, str(constant.ty.dtype), 0)
        return self.builder_.emit(made)


def lower_and_fuse(module: Any) -> Any:
    """Lower a Relax module to calls of TensorIR functions, and fuse operators."""
    passes = relax.transform
    for module_pass in (
        mark_view_candidates,
        passes.LegalizeOps(_LEGALIZATIONS),
        _fix_extrema,
        passes.AnnotateTIROpPattern(),
        select_view_candidates,
        passes.FuseOps(),
        passes.FuseTIR(),
        passes.DeadCodeElimination(),
        lower_scans,
        lower_sorts,
        relax.backend.DispatchSampling(),
        relax.backend.DispatchSortScan(),
        passes.LegalizeOps(),
        widen_accumulators,
        _hide_arithmetic,
        passes.RewriteDataflowReshape(),
        passes.DeadCodeElimination(),
    ):
        module = module_pass(module)
    return module


def _call_sequence(
    module: Any,
    target: str,
    loops: TunedLoops,
    dimension: OpenDimension | None,
    *,
    wait: bool,
) -> CompiledNetwork:
    """Compile a network to a sequence of kernel calls."""
    sequence = read_call_sequence(module)
    functions = {call.kernel: module[call.kernel] for call in sequence.calls}
    opened = None if dimension is None else _open_functions(dimension, sequence, functions)
    functions |= {name: own.function for name, own in (opened or {}).items()}
    opened_by_id = {id(own.function): own for own in (opened or {}).values()}
    sequence, functions = gather_channels(sequence, functions)
    sequence, functions = elide_copies(sequence, functions)
    sequence, functions = place_state(sequence, functions)
    sequence, functions = _rename_tuned_loops(sequence, functions, loops)
    sequence, specialized = specialize_buffers(sequence, functions)
    whole = {call.symbol: functions[call.kernel] for call in sequence.calls}
    sequence = _name_by_task(sequence, functions)
    named = {
        name: function.with_attr("global_symbol", name) for name, function in specialized.items()
    }
    # Schedules come last, because strides of views decide on vectors.
    kernels = apply_default_schedules(
        tvm.IRModule(named), target, lambda name, _: loops.plan(whole[name])
    )
    scheduled = {str(var.name_hint): function for var, function in kernels.functions_items()}
    takes_extent: set[str] = set()
    if dimension is not None:
        for name, function in scheduled.items():
            own = opened_by_id.get(id(whole[name]))
            ended = function if own is None else end_loops(function, own)
            # The caller of a network that is not open names no extent that kernels may use.
            fixed = dimension.extent if opened is None else 0
            scheduled[name], is_open = open_axes.with_extent(ended, fixed)
            takes_extent |= {name} if is_open else set()
    pool = ThreadPoolExecutor(1)
    archive = pool.submit(_object_files, scheduled, target, pool)
    if wait:
        archive.result()
        pool.shutdown()
    executable = SequenceExecutable(
        kernels=archive.result,
        sequence=sequence,
        loops={name: parallel_extents(function) for name, function in scheduled.items()},
        takes_extent=frozenset(takes_extent),
        extent=0 if dimension is None or opened is None else dimension.extent,
    )
    unscheduled = frozenset(name for name, func in scheduled.items() if not is_scheduled(func))
    return CompiledNetwork(
        executable=executable,
        functions=whole,
        unscheduled=unscheduled,
        is_open=opened is not None,
    )


def _open_functions(
    dimension: OpenDimension, sequence: CallSequence, functions: Mapping[str, Any]
) -> dict[str, OpenFunction] | None:
    """The functions with open axes that are not tuned; None if a call must compute all."""
    tuned = frozenset(
        name for name, function in functions.items() if TASK_ATTRIBUTE in (function.attrs or {})
    )
    try:
        return dimension.functions(sequence, functions, tuned)
    except NotOpenError as reason:
        if dimension.needed:
            raise ConfigError(
                f"kernels for inputs of {dimension.extent} compute more than a call, because "
                f"{reason}",
                hint="Use `buckets` without `pad` instead of a range.",
            ) from reason
        log.info("network_not_open", extent=dimension.extent, reason=str(reason))
        return None


def _object_files(functions: Mapping[str, Any], target: str, pool: Executor) -> bytes:
    """The object files of scheduled functions, from the cache or compiled in threads."""
    hashes = {name: structural_hash(function) for name, function in functions.items()}
    file = cache_path(OBJECT_CACHE, [_cache_key(), target, hashes])
    known = read_cached_bytes(file)
    # TVM's structural hash is the same for a copy from a to b and for one from b to a.
    if known is not None and known[:_DIGEST_BYTES] == _digest(functions):
        return known[_DIGEST_BYTES:]
    archive = _compile_in_threads(functions, target)
    # The cache is written in the background, because the functions' texts take long.
    pool.submit(lambda: write_cached_bytes(file, _digest(functions) + archive))
    return archive


def _digest(functions: Mapping[str, Any]) -> bytes:
    """A digest of the names and the text of functions."""
    with ThreadPoolExecutor(len(usable_cores())) as pool:
        texts = [*functions, *pool.map(tvm.ir.save_json, functions.values())]
    return hashlib.blake2b(json.dumps(texts).encode(), digest_size=_DIGEST_BYTES).digest()


def _compile_in_threads(functions: Mapping[str, Any], target: str) -> bytes:
    """The object files of scheduled functions; TVM releases Python's lock while it compiles."""
    named = list(functions.items())
    cores = len(usable_cores())
    parts = max(1, min(_PARTS_PER_CORE * cores, len(named) // _MIN_PART))

    def compiled_part(number: int) -> list[bytes]:
        resolved = tvm_target(target)
        with resolved, tvm.transform.PassContext(opt_level=3, config=UNCHECKED):
            module = tvm.IRModule(dict(named[number::parts]))
            return object_files(tvm.compile(module, target=resolved, tir_pipeline=PIPELINE))

    with ThreadPoolExecutor(cores) as pool:
        archives = pool.map(compiled_part, range(parts))
        return archive_of(content for objects in archives for content in objects)


def _cache_key() -> list[Any]:
    """Versions, code and machine that object files depend on."""
    own = Path(__file__).parents[1]
    return cache_key(("apache-tvm", "apache-tvm-ffi"), (own, Path(chameleon_tvm.__file__).parent))


def _rename_tuned_loops(
    sequence: CallSequence, functions: Mapping[str, Any], loops: TunedLoops
) -> tuple[CallSequence, dict[str, Any]]:
    """Name tuned loop functions by their tasks, in the calls and the functions."""
    names = {name: loops.task_of(function) for name, function in functions.items()}
    renamed = {name: symbol_of(task) if task else name for name, task in names.items()}
    calls = [
        attrs.evolve(call, kernel=renamed[call.kernel], symbol=renamed[call.kernel])
        for call in sequence.calls
    ]
    kernels = {renamed[name]: function for name, function in functions.items()}
    return attrs.evolve(sequence, calls=tuple(calls)), kernels


def _name_by_task(sequence: CallSequence, functions: Mapping[str, Any]) -> CallSequence:
    """Name the calls of tuned kernels by their tasks, as profiles do."""
    # A task with several output shapes or dtypes has several functions.

    def named(call: Call) -> Call:
        task = (functions[call.kernel].attrs or {}).get(TASK_ATTRIBUTE)
        return call if task is None else attrs.evolve(call, kernel=symbol_of(str(task)))

    return attrs.evolve(sequence, calls=tuple(named(call) for call in sequence.calls))


def compile_baseline(module: Any, target: str) -> Any:
    """Compile a network to a ``relax.Executable`` with TVM's own schedules, as a baseline."""
    resolved = tvm_target(target)
    with resolved, tvm.transform.PassContext(opt_level=3):
        lowered = relax.transform.LegalizeOps(SORT_LEGALIZATIONS)(module)
        return relax.build(relax.get_pipeline("zero")(lowered), resolved)


def _fix_extrema(module: Any) -> Any:
    """Let maxima and minima treat infinity and NaN as frameworks do."""
    # TVM begins reductions at the largest finite number, and the result is the second operand if
    # either is NaN.
    functions = {
        variable: _move_constants_first(with_initial_extrema(function, infinite=True))
        if isinstance(function, tirx.PrimFunc)
        else function
        for variable, function in module.functions_items()
    }
    return tvm.IRModule(functions, attrs=module.attrs)


def _hide_arithmetic(module: Any) -> Any:
    """Make arithmetic on data opaque to TVM, but not that of tuned kernels."""
    functions = {
        variable: hide_arithmetic(function)
        if isinstance(function, tirx.PrimFunc) and TASK_ATTRIBUTE not in (function.attrs or {})
        else function
        for variable, function in module.functions_items()
    }
    return tvm.IRModule(functions, attrs=module.attrs)


def _move_constants_first(function: Any) -> Any:
    def exchanged(extreme: Any) -> Any:
        a, b = extreme.a, extreme.b
        is_number = isinstance(b, tvm.ir.TensorLoad) and not b.indices
        return type(extreme)(b, a) if is_number or isinstance(b, tirx.FloatImm) else extreme

    body = structural_map(function.body, [(tirx.Max, exchanged), (tirx.Min, exchanged)])
    return function if body.same_as(function.body) else function.with_body(body)


def _lower_arg_extremum(extreme: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    """A function that lowers ``argmax`` or ``argmin`` to an extremum and its first index."""
    # TVM compares numbers and indices at once, without vectors, and returns -1 for infinities.

    def lowered(builder: Any, call: Any) -> Any:
        def places(x: Any) -> Any:
            if call.attrs.axis is None:
                x = tvm.topi.reshape(x, [math.prod(map(int, x.shape))])
            axis = 0 if call.attrs.axis is None else int(call.attrs.axis) % len(x.shape)
            numbers = tvm.topi.cast(x, INT8) if str(x.dtype) == "bool" else x
            best = extreme(numbers, axis, keepdims=True)
            along = te.reduce_axis((0, x.shape[axis]), "along")
            last = tirx.const(int(x.shape[axis]) - 1, "int32")

            def place(*at: Any) -> Any:
                number = numbers(*at[:axis], along, *at[axis + 1 :])
                here = tirx.Cast("int32", along.var)
                place = tirx.Select(number == best(*at), here, last)
                if "float" in str(number.ty):  # NaN is the extremum, and unequal to itself
                    infinity = tirx.FloatImm(str(number.ty), math.inf)
                    place = tirx.Select(number <= infinity, place, here)
                return te.min(place, axis=along)

            first = te.compute(best.shape, place, name="first")

            def given(*at: Any) -> Any:
                kept = at if call.attrs.keepdims else (*at[:axis], 0, *at[axis:])
                return tirx.Cast(str(call.ty.dtype), first(*kept[: len(x.shape)]))

            return te.compute([*call.ty.shape], given, name="place")

        name = str(call.op.name).removeprefix("relax.")
        return builder.call_te(places, call.args[0], primfunc_name_hint=name)

    return lowered


_LEGALIZATIONS = ELEMENTWISE | {
    f"relax.arg{name}": _lower_arg_extremum(getattr(tvm.topi, name)) for name in ("max", "min")
}
_LEGALIZATIONS |= NORMALIZATIONS
"""Functions that lower an operator, by its name."""
