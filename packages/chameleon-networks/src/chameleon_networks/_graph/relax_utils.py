"""Helpers of importers and of passes over Relax graphs.

Import ``relax`` from here: TVM's own import would load torch, which takes seconds.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial, reduce
from operator import add
from typing import Any

import attrs
import numpy as np
from chameleon_core.plugin_api import FLOAT32, ConfigError
from chameleon_system.api import block_import
from chameleon_tvm.api import array_type, te, tirx
from chameleon_tvm.api import tvm as _tvm
from numpy.typing import NDArray

from tvm_ffi.serialization import from_json_graph_str  # isort: skip
from tvm_ffi.structural import structural_map  # isort: skip

with block_import("torch"):
    from tvm import relax as _relax

relax, tvm = _relax, _tvm
"""TVM, and its graph language, for modules that import them from here."""

STATE_ATTRIBUTE = "chameleon.state"
"""The attribute of ``main`` with the number of its last inputs that it changes.

Their new values are its last outputs.
"""

COUNTS_ATTRIBUTE = "chameleon.counts"
"""The attribute of ``main`` with the axes of its outputs whose extents are known after a call.

For each count, it has pairs of an output and an axis. A count is a tensor of one int64. The counts
are the last outputs.
"""

COUNTED = "counted_"
"""The beginning of the names of kernels that choose elements, and count them."""

LOOPS_ATTRIBUTE = "chameleon.loops"
"""An attribute of functions that are already vectorized and parallel loops."""

PLAIN_LOOPS = "chameleon.plain_loops"
"""An attribute of a function that consists of loops inside a block of its own, with 32-bit indices.
It takes a short pipeline of passes."""

_OPAQUE = 8
"""The kind of TVM's functions that are never fused."""

UPDATE_ATTRIBUTE = "chameleon.update"
"""An attribute of functions that copy their first parameter to the last one, then write rows."""

_LARGE = 1024
"""Bytes of a constant above which it is kept beside a module's text."""

_CONSTANT = "constant:"
"""Beginning of a name that no importer gives to a variable."""

SORTABLE = ("int32", "int64")
"""Dtypes that TVM's run-time library sorts. It sorts floats, too, but misplaces NaN."""

KEY_BITS = 32
"""Number of bits of a key that is one integer with its place."""

NEAREST, LINEAR, CUBIC = "nearest", "bilinear", "bicubic"
ZEROS, BORDER, REFLECTION = "zeros", "border", "reflection"

_CUBIC = -0.75
"""The parameter of Keys, "Cubic convolution interpolation for digital image processing", 1981."""

_MOST_INT32, _MOST_INT64 = 2.0**31, 2.0**63

_FAR = -100.0
"""Torch's place of pixels of volumes whose coordinates are not finite or not in int32."""

_PLANE_AXES = 2

_Number = Callable[[float], Any]


def state_count(function: Any) -> int:
    """How many of a function's last inputs are buffers that a call changes; see STATE_ATTRIBUTE."""
    return int((function.attrs or {}).get(STATE_ATTRIBUTE, 0))


def counted_axes(function: Any) -> list[list[list[int]]]:
    """Pairs of an output and an axis for each count of a function; see COUNTS_ATTRIBUTE."""
    counts = (function.attrs or {}).get(COUNTS_ATTRIBUTE, ())
    return [[[int(number) for number in pair] for pair in axes] for axes in counts]


def mutate(module: Any, mutator: Any) -> Any:
    """Apply a ``PyExprMutator`` to a module's Relax functions, then remove dead code."""
    for variable, function in module.functions_items():
        if isinstance(function, relax.Function):
            mutator.builder_.update_func(variable, mutator.visit_expr(function))
    return relax.transform.DeadCodeElimination()(mutator.builder_.get())


def emit_like(builder: Any, value: Any, variable: Any, name: str = "") -> Any:
    """Bind a value to a new variable that is an output of the block if ``variable`` is."""
    inner = isinstance(variable, relax.DataflowVar)
    return (builder.emit if inner else builder.emit_output)(value, name)


def bindings_of(function: Any) -> list[Any]:
    """The bindings of a function, in order."""
    return [binding for block in function.body.blocks for binding in block.bindings]


def values_of(function: Any) -> dict[Any, Any]:
    """The value of each variable that a function binds."""
    return {binding.var: binding.value for binding in bindings_of(function)}


def users_of(function: Any) -> dict[Any, list[Any]]:
    """The bindings that read each variable; None stands for the function's result."""
    users: dict[Any, list[Any]] = defaultdict(list)
    for binding in bindings_of(function):
        for variable in relax.analysis.free_vars(binding.value):
            users[variable].append(binding)
    for variable in relax.analysis.free_vars(function.body.body):
        users[variable].append(None)
    return users


CHOICES = frozenset({f"relax.{name}" for name in ("argmax", "argmin", "argsort", "topk")})
"""Operators that give positions of the largest or smallest numbers."""


def exact_variables(function: Any) -> set[Any]:
    """The variables of a function with integers that are not made of floating-point numbers.

    Rounding does not change them. Positions of chosen numbers are among them, and shapes.
    """
    exact = {variable for variable in function.params if _is_integral(variable)}
    values = values_of(function)
    for variable, value in values.items():
        reads: Sequence[Any] = relax.analysis.free_vars(value)
        if isinstance(value, relax.TupleGetItem):
            parts = values.get(value.tuple_value)
            reads = [parts.fields[value.index]] if isinstance(parts, relax.Tuple) else reads
        known = all(read in exact for read in reads)
        if (
            operator_name(value) in CHOICES
            or is_counted(value)
            or (known and _is_integral(variable))
            or isinstance(variable.ty, relax.ShapeType)
        ):
            exact.add(variable)
    return exact


def is_counted(value: Any) -> bool:
    """Whether a value is the call of a kernel with the places of elements and their count."""
    is_kernel = operator_name(value) == "relax.call_tir"
    return is_kernel and str(value.args[0].name_hint).startswith(COUNTED)


def _is_integral(variable: Any) -> bool:
    kind = variable.ty
    return isinstance(kind, relax.TensorType) and "float" not in str(kind.dtype)


def operator_name(value: Any) -> str:
    """The name of the operator that an expression calls; empty for other expressions."""
    with_args = isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.Op)
    return str(value.op.name) if with_args else ""


def with_args(call: Any, arguments: Sequence[Any], **attributes: Any) -> Any:
    """Copy a call with other arguments, and with other values of some attributes."""
    attrs = call.attrs
    if attributes:
        kind = type(attrs).__tvm_ffi_type_info__
        known = {field.name: getattr(attrs, field.name) for field in kind.fields}
        attrs = tvm.ir.make_node(kind.type_key, **{**known, **attributes})
    return relax.Call(call.op, arguments, attrs, call.ty_args)


def map_elements(
    builder: Any, function: Callable[[Any], Any], tensor: Any, hint: str, **options: Any
) -> Any:
    """Call a function on each element of a tensor, by ``call_te``."""

    def whole(source: te.Tensor) -> te.Tensor:
        name = hint.partition("_")[0]
        return te.compute(source.shape, lambda *at: function(source(*at)), name=name)

    return builder.call_te(whole, tensor, primfunc_name_hint=hint, **options)


def log1p(emit: Callable[[Any], Any], x: Any, *, signed: bool = True) -> Any:
    """``log(1 + x)`` with all digits of a small x; ``signed`` if x may be -0.0.

    The rounding error of the sum corrects the logarithm.
    """
    one = relax.const(1.0, str(x.ty.dtype))
    total = emit(x + one)
    rough = emit(relax.op.log(total))
    lost = emit((total - one - x) / total)
    # The correction is NaN if the sum is zero or infinite, and a zero keeps its sign.
    exact = emit(relax.op.where(relax.op.isnan(lost), rough, rough - lost))
    if not signed:
        return exact
    return relax.op.where(relax.op.equal(x, relax.const(0.0, str(x.ty.dtype))), x, exact)


def integer_power(builder: Any, base: Any, exponent: Any) -> Any:
    """Powers of integers, which wrap as products do; floats would hold only 53 bits of them.

    A reciprocal, of a negative exponent, is rounded to zero.
    """
    operands = [builder.emit(each) for each in (base, exponent)]
    extents = np.broadcast_shapes(*([int(e) for e in each.ty.shape] for each in operands))
    base, exponent = (builder.emit(relax.op.broadcast_to(each, [*extents])) for each in operands)
    kind = np.dtype(str(base.ty.dtype))
    bits = 8 * kind.itemsize - (kind.kind == "i")
    # From the first bit of the exponent to the last one: not commutative, so in this order only.
    number = partial(tirx.const, dtype=kind.name)
    power = te.comm_reducer(lambda result, factor: result * result * factor, lambda _: number(1))

    def whole(bases: te.Tensor, exponents: te.Tensor) -> te.Tensor:
        place = te.reduce_axis((0, bits), "bit")

        def factor(*at: Any) -> Any:
            bit = (exponents(*at) >> tirx.Cast(kind.name, bits - 1 - place)) & number(1)
            return power(tirx.Select(bit.equal(number(1)), bases(*at), number(1)), axis=place)

        return te.compute(bases.shape, factor, name="power")

    result = builder.call_te(whole, base, exponent, primfunc_name_hint="power")
    if kind.kind == "u":
        return result
    zero, one = (relax.const(value, kind.name) for value in (0, 1))
    op = relax.op
    odd = builder.emit(op.equal(op.bitwise_and(exponent, one), one))
    unit = builder.emit(op.equal(op.abs(base), one))
    reciprocal = builder.emit(op.where(unit, op.where(odd, base, one), zero))
    return op.where(exponent < zero, reciprocal, builder.emit(result))


def transposed_convolution(
    data: Any,
    weights: Any,
    *,
    strides: Sequence[int],
    padding: Sequence[int],
    output_padding: Sequence[int],
    dilation: Sequence[int],
    groups: int = 1,
) -> Any:
    """The call of a transposed convolution of channels first.

    Args:
        data: The images, of shape (N, I, spatial axes).
        weights: The filters, of shape (I, O of a group, spatial axes).
        strides: The stride along each spatial axis.
        padding: Number of outputs to crop at the front of each spatial axis, then at each end.
        output_padding: Number of outputs to add at the end of each spatial axis.
        dilation: The dilation along each spatial axis.
        groups: Number of groups.
    """
    # TVM refuses an output padding of a stride or more. It uncovers outputs that are cropped, and
    # a negative crop adds zeros.
    rank = len(strides)
    ends = [end - more for end, more in zip(padding[rank:], output_padding, strict=True)]
    convolve = getattr(relax.op.nn, f"conv{rank}d_transpose")
    crops = [*padding[:rank], *ends]
    return convolve(data, weights, list(strides), crops, dilation=list(dilation), groups=groups)


@attrs.frozen(kw_only=True)
class GridSample:
    """Sampling of images at the places of a grid, as torch and onnxruntime define it.

    TVM's own ``grid_sample`` differs from both at places that are NaN, infinite or far outside.

    Attributes:
        method: ``NEAREST``, ``LINEAR`` or ``CUBIC``.
        padding: ``ZEROS``, ``BORDER`` or ``REFLECTION``.
        align_corners: Whether -1 and 1 are the centers of the outer pixels, and not their edges.
        axes: Number of spatial axes.
        moves_places: Whether places outside are moved into the image before pixels are chosen, as
            by torch. Otherwise, each pixel outside is replaced by one inside, as by onnxruntime.
    """

    method: str
    padding: str
    align_corners: bool
    axes: int
    moves_places: bool

    def apply(self, builder: Any, data: Any, grid: Any) -> Any:
        """Sample images of shape (N, C, *spatial) at a grid of shape (N, *places, axes).

        Coordinates are from -1 to 1, columns first. The result has the shape (N, C, *places).
        """
        return builder.call_te(self._sampled, data, grid, primfunc_name_hint="grid_sample")

    def _sampled(self, data: te.Tensor, grid: te.Tensor) -> te.Tensor:
        number = partial(tirx.const, dtype=grid.dtype)
        zero = tirx.const(0, data.dtype)
        extents = [int(extent) for extent in data.shape[2:]]
        places = [self._places(grid, axis, extent) for axis, extent in enumerate(extents)]
        pixels = [self._pixels(one, extent) for one, extent in zip(places, extents, strict=True)]

        def value(n: Any, c: Any, *place: Any) -> Any:
            weights = [self._weights(at(n, *place), number) for at in places]

            def interpolated(*steps: int) -> Any:
                axis = len(steps)
                if axis < self.axes:
                    parts = [
                        interpolated(*steps, step)
                        if weight is None
                        else interpolated(*steps, step) * weight.astype(data.dtype)
                        for step, weight in enumerate(weights[axis])
                    ]
                    return reduce(add, parts)
                chosen = [one(n, *place, step) for one, step in zip(pixels, steps, strict=True)]
                if self.padding != ZEROS and not self._moves_first:
                    return data(n, c, *chosen)
                # A vector reads pixels without branches, so that those outside need a place, too.
                # Vectors need selections instead of branches, and so a pixel to read outside.
                pixel = data(n, c, *map(_inside, chosen, extents))
                for at, extent in zip(chosen, extents, strict=True):
                    pixel = tirx.Select(_inside(at, extent).equal(at), pixel, zero)
                return pixel

            return interpolated()

        return te.compute((*data.shape[:2], *grid.shape[1:-1]), value, name="grid_sample")

    @property
    def _moves_first(self) -> bool:
        return self.moves_places and self.method != CUBIC

    def _places(self, grid: te.Tensor, axis: int, extent: int) -> te.Tensor:
        """Places on an axis of the images, in pixels."""
        number = partial(tirx.const, dtype=grid.dtype)

        def place(*at: Any) -> Any:
            shifted = grid(*at, self.axes - 1 - axis) + number(1)
            if self.align_corners:
                found = shifted / number(2) * number(extent - 1)
            else:
                found = (shifted * number(extent) - number(1)) / number(2)
            if self._moves_first:
                found = self._moved(found, extent, number)
                if self.axes > _PLANE_AXES:
                    is_near = te.abs(found) < number(_MOST_INT32)
                    found = tirx.if_then_else(is_near, found, number(_FAR))
            if not self.moves_places:  # onnxruntime takes the first edge for what int64 lacks
                edge = number(0 if self.align_corners else -0.5)
                found = tirx.if_then_else(te.abs(found) < number(_MOST_INT64), found, edge)
            return te.nearbyint(found) if self.method == NEAREST else found

        return te.compute(grid.shape[:-1], place, name="place")

    def _pixels(self, places: te.Tensor, extent: int) -> te.Tensor:
        """The numbers of the pixels that a place reads, of shape (N, *places, pixels)."""
        number = partial(tirx.const, dtype=places.dtype)
        lowest, count = {NEAREST: (0, 1), LINEAR: (0, 2), CUBIC: (-1, 4)}[self.method]

        def pixel(*at: Any) -> Any:
            found = te.floor(places(*at[:-1])) + at[-1].astype(places.dtype) + number(lowest)
            if not self._moves_first:
                found = self._moved(found, extent, number)
            # Pixels outside stay outside.
            ends = number(-1), number(extent)
            return tirx.Cast("int32", _clipped(found, *ends, if_nan=ends[0]))

        return te.compute((*places.shape, count), pixel, name="pixel")

    def _weights(self, place: Any, number: _Number) -> list[Any]:
        """The weights of the pixels that a place reads; None if there is one pixel."""
        first, one = te.floor(place), number(1)
        share = place - first
        if self.method == NEAREST:
            return [None]
        if self.method == LINEAR:
            return [first + one - place, share]

        def near(x: Any) -> Any:
            return (number(_CUBIC + 2) * x - number(_CUBIC + 3)) * x * x + one

        def far(x: Any) -> Any:
            scaled = number(_CUBIC) * x - number(5 * _CUBIC)
            return (scaled * x + number(8 * _CUBIC)) * x - number(4 * _CUBIC)

        return [far(share + one), near(share), near(one - share), far(number(2) - share)]

    def _moved(self, at: Any, extent: int, number: _Number) -> Any:
        """A place or pixel that is moved into the image, if the padding wants it."""
        if self.padding == ZEROS:
            return at
        if self.padding == REFLECTION:
            low = 0.0 if self.align_corners else -0.5
            span = extent - 1 if self.align_corners else extent
            if span == 0:
                return number(0)
            distance, twice = te.abs(at - number(low)), number(2 * span)
            beyond = distance - te.trunc(distance / twice) * twice
            at = tirx.if_then_else(beyond < twice - beyond, beyond, twice - beyond) + number(low)
        first, last = number(0), number(extent - 1)
        is_volume = self.moves_places and self.axes > _PLANE_AXES
        return _clipped(at, first, last, if_nan=last if is_volume else first)


def _inside(at: Any, extent: int) -> Any:
    """The number of the nearest pixel inside of an axis."""
    return te.max(te.min(at, extent - 1), 0)


def _clipped(at: Any, low: Any, high: Any, *, if_nan: Any) -> Any:
    """A number between two limits, one of which stands for NaN."""
    if if_nan is low:
        return tirx.if_then_else(at > low, tirx.if_then_else(at < high, at, high), low)
    return tirx.if_then_else(at < high, tirx.if_then_else(at > low, at, low), high)


def static_shape(kind: Any) -> tuple[int, ...] | None:
    """The shape of a tensor type or buffer; None for other values or dynamic shapes."""
    # Indexing a Relax shape takes four times as long as reading the list of its extents.
    shape = getattr(kind, "shape", None)
    if shape is None:
        return None
    extents = getattr(shape, "values", shape)
    known = [int(extent.value) for extent in extents if isinstance(extent, tirx.IntImm)]
    return tuple(known) if len(known) == len(extents) else None


def shape_of(value: Any) -> tuple[int, ...]:
    """The shape of an expression or type; a dynamic extent raises a ``ConfigError``."""
    kind = getattr(value, "ty", value)
    shape = static_shape(kind)
    if shape is None:
        raise ConfigError(
            f"the network has a tensor of unknown shape: {kind}",
            hint="Fix every input's shape; dynamic shapes are not supported.",
        )
    return shape


def axes_of(call: Any) -> tuple[int, ...]:
    """The axes of a ``permute_dims``, counted from the front."""
    count = len(shape_of(call))
    axes = call.attrs.axes
    return tuple(range(count))[::-1] if axes is None else tuple(int(axis) % count for axis in axes)


def bytes_of_constants(module: Any) -> int:
    """The bytes of all constants of a module."""
    sizes: list[int] = []

    def visit(value: Any) -> None:
        if isinstance(value, tvm.ir.expr.GenericConst):
            array = value.value
            sizes.append(math.prod(array.shape) * max(tvm.DataType(array.dtype).bits // 8, 1))

    relax.analysis.post_order_visit(module["main"], visit)
    return sum(sizes)


def extract_constants(module: Any) -> tuple[str, list[NDArray[Any]]]:
    """Convert a module to JSON without its large constants, and return these apart."""
    # TVM writes the bytes of constants as text, which takes far longer.
    arrays: list[NDArray[Any]] = []
    variables: dict[Any, Any] = {}

    def variable(constant: Any) -> Any:
        if constant not in variables:
            plain = str(constant.value.dtype) == FLOAT32  # NumPy reads these without a copy
            value = np.from_dlpack(constant.value) if plain else constant.value.numpy()
            if value.nbytes < _LARGE or value.dtype.kind not in "fiub":
                return constant
            variables[constant] = relax.Var(f"{_CONSTANT}{len(arrays)}", constant.ty)
            arrays.append(value)
        return variables[constant]

    functions = {
        name: structural_map(function, (tvm.ir.expr.GenericConst, variable))
        for name, function in module.functions.items()
    }
    return str(tvm.ir.save_json(tvm.IRModule(functions, module.attrs))), arrays


def restore_constants(text: str, arrays: Sequence[NDArray[Any]]) -> Any:
    """The inverse of ``extract_constants``."""
    # Without a dtype, TVM makes int32 of int64, and float32 of float64.
    constants = [relax.const(array, str(array.dtype)) for array in arrays]

    def constant(variable: Any) -> Any:
        name = str(variable.name)
        kept = name.startswith(_CONSTANT)
        return constants[int(name.removeprefix(_CONSTANT))] if kept else variable

    # The same version of TVM wrote the text, so that ``tvm.ir.load_json`` would upgrade nothing.
    module = from_json_graph_str(text)
    functions = {
        name: structural_map(function, (relax.Var, constant))
        for name, function in module.functions.items()
    }
    return tvm.IRModule(functions, module.attrs)


def in_block(function: Any) -> Any:
    """A function whose body is in a block, which ``RewriteDataflowReshape`` expects."""
    block = tvm.s_tir.SBlock([], [], [], "root", function.body)
    return function.with_body(tvm.s_tir.SBlockRealize([], True, block))


def opaque_loops(function: Any) -> Any:
    """A function of vectorized and parallel loops that no pass fuses or schedules."""
    marks = {"s_tir": True, LOOPS_ATTRIBUTE: True, "op_pattern": _OPAQUE}
    return in_block(function).with_attr(marks)


def sort_key(number: Any) -> Any:
    """An integer in the order of numbers, by their bits; zeros are equal, NaN is the largest."""
    kind = array_type(str(number.ty))
    whole = SORTABLE[kind.itemsize * 8 > KEY_BITS]
    if "float" not in kind.name:
        integer = tirx.Cast(whole, number)
        is_wide = kind.name == f"u{whole}"
        return integer ^ tirx.min_value(whole) if is_wide else integer
    stored = f"int{8 * kind.itemsize}"
    [infinite] = np.full(1, np.inf, kind).view(stored).tolist()
    nan = tirx.max_value(stored).astype(whole)
    bits = tirx.Cast(whole, tirx.reinterpret(stored, number))
    size = bits & nan
    signed = tirx.Select(bits < tirx.const(0, whole), -size, size)
    return tirx.Select(size > tirx.const(infinite, whole), nan, signed)
