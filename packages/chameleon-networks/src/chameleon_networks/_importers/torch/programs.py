"""Torch networks as exported programs: builtin ones, a user's function, or a saved program."""

from __future__ import annotations

import contextlib
import importlib
import io
import logging
import math
import re
import sys
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import attrs
import structlog
from chameleon_core.api import words
from chameleon_core.plugin_api import Arrays, ConfigError
from chameleon_tvm.api import HALVES, first_line, named_object

from chameleon_networks._frameworks.precision import half_type
from chameleon_networks._importers.options import NETWORKS
from chameleon_networks._importers.source_checks import import_library
from chameleon_networks._importers.torch import inference

log = structlog.get_logger()

Shapes = Mapping[str, Sequence[int]]
Keywords = dict[str, Any]
Export = Callable[..., Any]
"""A function that makes a program from positional and keyword inputs. A third argument gives the
axes whose extents stay open, as ``dynamic_shapes`` of ``torch.export.export``."""


@attrs.frozen(kw_only=True, eq=False)
class ExampleProgram:
    """A network that torch exported for example inputs, and can export for other inputs.

    Attributes:
        program: The ``torch.export.ExportedProgram`` for the example inputs.
        export: A function that exports the network for other inputs.
        owner: A name of the network for messages, such as its source.
        saved: Whether the program was loaded from a file, without the module that it was made from.
    """

    program: Any
    export: Export
    owner: str
    saved: bool = False

    def in_shapes(self, shapes: Shapes) -> Any:
        """Export the network for other shapes of some inputs."""
        if self.saved:
            check_saved_shapes(self.program, shapes, self.owner)
        program = export_for_shapes(self.program, shapes, self.export, self.owner)
        return inference.check_program(program)


_LARGEST_MASK = 1 << 18
"""The most numbers of a mask that are kept, since larger ones take seconds as JSON."""


@attrs.frozen(kw_only=True)
class NumberRange:
    """The dtype, shape and range of an example input, from which similar random inputs are made.

    Attributes:
        dtype: NumPy's name of the dtype.
        shape: The array's shape.
        least: The smallest number; 0 if the array is empty.
        most: The largest number; 0 if the array is empty.
        mask: The numbers as nested lists if the array looks like a mask, because it has infinities,
            or both True and False. Otherwise None. Random masks could hide all columns of a row.
    """

    dtype: str
    shape: tuple[int, ...]
    least: float
    most: float
    mask: Any = None

    @classmethod
    def of(cls, array: Any) -> NumberRange:
        """The range of an array of NumPy."""
        least, most = (array.min().item(), array.max().item()) if array.size else (0, 0)
        is_mask = (array.dtype == bool and least < most) or (abs(array) == math.inf).any()
        has_mask = is_mask and array.ndim and array.size <= _LARGEST_MASK
        mask = array.tolist() if has_mask else None
        return cls(dtype=array.dtype.name, shape=array.shape, least=least, most=most, mask=mask)

    @property
    def limits(self) -> tuple[float, float] | None:
        """The smallest and the largest admissible number; None if it is no float, or a mask."""
        if self.mask is not None or not self.dtype.startswith("float"):
            return None
        # If no number is negative, the network may take logarithms or roots.
        if self.least < 0 or not math.isfinite(self.most) or self.most <= self.least:
            return (-math.inf, math.inf)
        return (self.least, self.most)


@attrs.frozen(kw_only=True)
class ProgramInputs:
    """A program's example inputs, the structure of its outputs, and its precision.

    Attributes:
        half: ``float16`` or ``bfloat16`` if the program computes in that dtype, else None.
        returned: The structure of the outputs; see ``ImportedNetwork.returned``.
        state: The names of the buffers that a call changes; see ``ImportedNetwork.state``.
        ranges: The dtype, the shape, and the smallest and largest number of each example input, by
            name. Inputs in half precision are described as float32.
    """

    half: str | None
    ranges: Mapping[str, NumberRange]
    returned: Any
    state: tuple[str, ...] = ()

    @classmethod
    def of(cls, program: Any) -> ProgramInputs:
        """The inputs of a ``torch.export.ExportedProgram``."""
        arrays = zip(input_tensors(program), example_arrays(program), strict=True)
        ranges = {name: NumberRange.of(array) for name, array in arrays}
        return cls(
            half=half_type(program),
            ranges=ranges,
            returned=returned_structure(program),
            state=tuple(inference.state_of(program)),
        )


def returned_structure(program: Any) -> Any:
    """The structure of a program's outputs; see ``ImportedNetwork.returned``."""
    constant = importlib.import_module("torch.export.graph_signature").ConstantArgument
    specs = [s for s in program.graph_signature.output_specs if s.kind.name == "USER_OUTPUT"]
    returned = program.call_spec.out_spec
    if inference.state_of(program):  # the new state follows
        returned = _children(returned)[0]
    whole = _tensors_in(returned, iter([type(s.arg) is constant for s in specs]))
    if whole is None:
        return {"type": "tuple", "parts": []}  # the import says that there is no tensor
    if "keys" not in whole and whole["type"] != _LEAF:
        if len(whole["parts"]) == 1 and whole["parts"][0]["type"] == _LEAF:
            return "output0"  # as of a network that returns a tensor
        if whole["type"] == "tuple":
            keys = [f"output{number}" for number in range(len(whole["parts"]))]
            whole = {"type": "Outputs", "keys": keys, "parts": whole["parts"]}
    return _with_names(whole, ())


_LEAF = ""


def _tensors_in(spec: Any, are_constants: Iterator[bool]) -> Any:
    """The structure of the tensors in a ``TreeSpec``; None if it has none."""
    if spec.is_leaf():
        return None if next(are_constants) else {"type": _LEAF}
    parts = [_tensors_in(child, are_constants) for child in _children(spec)]
    kept = [place for place, part in enumerate(parts) if part is not None]
    if not kept:
        return None
    name, keys = _keys_of(spec)
    known = {} if keys is None else {"keys": [keys[place] for place in kept]}
    return {"type": name, **known, "parts": [parts[place] for place in kept]}


def _children(spec: Any) -> Sequence[Any]:
    """The structures of a container's parts."""
    # Torch had no method ``children`` before version 2.9.
    children: Sequence[Any] = spec.children() if hasattr(spec, "children") else spec.children_specs
    return children


def _keys_of(spec: Any) -> tuple[str, Sequence[Any] | None]:
    """The name of a container's class, and the keys or fields of its parts."""
    own, context = spec.type, spec.context
    if own in (dict, OrderedDict, defaultdict):
        keys = context[1] if own is defaultdict else context
        return "dict", [key if isinstance(key, str | int) else str(key) for key in keys]
    if own in (tuple, list):
        return own.__name__, None
    # Contexts of a named tuple, of an output of transformers, of a dataclass, and torch's results.
    known = (
        *(getattr(context, "_fields", None), context),
        *(context[0] if context else None, getattr(own, "__match_args__", None)),
    )
    for keys in known:
        if not isinstance(keys, list | tuple) or len(keys) != spec.num_children:
            continue
        if all(isinstance(key, str) for key in keys):
            return getattr(context, "__name__", own.__name__), keys
    return "tuple", None


def _with_names(part: Any, path: tuple[str, ...]) -> Any:
    """A structure with a name for each tensor, such as ``hidden_states.0``."""
    if part["type"] == _LEAF:
        return ".".join(path) or "output0"
    keys = part.get("keys") or range(len(part["parts"]))
    names = [str(key) if path or "keys" in part else f"output{key}" for key in keys]
    parts = [
        _with_names(inner, (*path, name)) for inner, name in zip(part["parts"], names, strict=True)
    ]
    return {**part, "parts": parts}


def builtin_program(name: str, batch: int, dtype: str = "float32") -> ExampleProgram:
    """Make a builtin network with random weights."""
    torch = _torch()
    record = NETWORKS[name]
    module, _, function = record.factory.partition(":")
    network = inference.initialise(getattr(importlib.import_module(module), function)())
    network = network.to(getattr(torch, dtype))
    shape = (batch, *record.inputs)
    if record.kind == "tokens":
        # The largest id bounds random ids.
        example = torch.full(shape, record.vocabulary - 1, dtype=torch.int64)
    else:
        example = torch.zeros(shape, dtype=getattr(torch, dtype))
    return _export_example(network, (example,), {}, name)


def export_source(source: str) -> ExampleProgram:
    """Export the network of a user's function that returns a module and example inputs."""
    result = _call_source(source)
    is_pair = isinstance(result, tuple) and len(result) == 2  # noqa: PLR2004
    network, inputs = result if is_pair else (result, ())
    if not is_pair or not isinstance(network, _torch().nn.Module):
        wanted = "torch module" if is_pair else "pair"
        raise ConfigError(
            f"{source} returned {words.with_article(type(network).__name__)} instead of a {wanted}",
            hint="Return the torch module and a tuple of example inputs.",
        )
    _check_float(network, source)
    return export_module(inference.evaluated(network), inputs, source)


def export_module(network: Any, inputs: Any, owner: str) -> ExampleProgram:
    """Export a torch module for example inputs."""
    # Detached copies, because torch merges inputs that are the same tensor.
    tree: Any = importlib.import_module("torch.utils._pytree")
    positional, keywords = tree.tree_map_only(
        _torch().Tensor, lambda x: x.detach().resolve_neg().resolve_conj(), _arguments(inputs)
    )
    return _export_example(network, positional, keywords, owner)


def _check_float(network: Any, source: str) -> None:
    """Check that a network consists of Python modules that compute in floating point."""
    if isinstance(network, _torch().jit.ScriptModule):
        raise ConfigError(
            f"{source} returned a TorchScript module, which torch does not export",
            hint="Return the module that was traced or scripted.",
        )
    kinds = [type(module) for module in network.modules()]
    # Modules such as those of `torch.ao.nn.quantized`; a user's module may have such a name.
    names = [k.__name__ for k in kinds if re.match(r"torch\b.*\bquantized\b", k.__module__)]
    if names:
        raise ConfigError(
            f"{source} returned a quantized network, one with a {names[0]}",
            hint="Return the network as it was before, in float32, or quantized by pt2e "
            "(prepare_pt2e, convert_pt2e).",
        )


def _export_example(
    network: Any, positional: tuple[Any, ...], keywords: Keywords, owner: str
) -> ExampleProgram:
    def export(positional: tuple[Any, ...], keywords: Keywords, dynamic: Any = None) -> Any:
        attempt = partial(_export, network, positional, keywords, dynamic)
        try:
            return attempt()
        except Exception as error:  # torch raises errors of many classes
            if _is_data_dependent(error) and (
                program := inference.export_without_checks(network, attempt)
            ):
                return program
            raise ConfigError(
                f"torch cannot export the network of {owner}: {first_line(error)}",
                hint=_export_hint(error),
            ) from error

    return ExampleProgram(program=export(positional, keywords), export=export, owner=owner)


def _export(
    network: Any, positional: tuple[Any, ...], keywords: Keywords, dynamic: Any = None
) -> Any:
    torch = _torch()
    functions = importlib.import_module(f"{__package__}.lowering.functions")
    with (
        torch.no_grad(),
        hold_back_torch_messages(),
        functions.FunctionReplacements(),
        functions.recurrent_shapes(),
    ):
        return torch.export.export(network, positional, keywords, dynamic_shapes=dynamic)


def _arguments(inputs: Any) -> tuple[tuple[Any, ...], Keywords]:
    """Split example inputs into positional and keyword arguments."""
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    if not isinstance(inputs, tuple | list):
        return (inputs,), {}
    pair = 2
    if len(inputs) == pair and isinstance(inputs[0], tuple | list) and isinstance(inputs[1], dict):
        return tuple(inputs[0]), inputs[1]
    return tuple(inputs), {}


_DATA_DEPENDENT_WORDS = ("data-dependent", "unbacked", "fake tensor", "faketensor")
"""Words in torch's errors about code that needs the values of tensors during export."""


def _is_data_dependent(error: Exception) -> bool:
    words = str(error).lower()
    return any(one in words for one in _DATA_DEPENDENT_WORDS)


def _export_hint(error: Exception) -> str:
    """A hint that shows the code that torch cannot export, and how to solve the problem."""
    lines = [line.strip() for line in str(error).splitlines()]
    frames = [place for place, line in enumerate(lines) if line.startswith("File ")]
    code = ""
    if frames:
        last = lines[frames[-1] : frames[-1] + 2]
        code = f"It is about {', '.join(last)}. "
    if not _is_data_dependent(error):
        return f"{code}Call torch.export.export(network, inputs) by hand for its whole traceback."
    return (
        f"{code}What the code does must not depend on the values of tensors: write such an "
        "`if` with torch.where, or decide it outside of the network."
    )


def load_saved(file: str) -> ExampleProgram:
    """Load a program that ``torch.export.save`` wrote."""
    try:
        program = _load(file)
    except Exception as error:  # torch raises errors of many classes
        raise ConfigError(
            f"{file} is no program saved by torch.export: {first_line(error)}",
            hint="Save one with torch.export.save(torch.export.export(module, inputs), file). "
            "Programs with custom operators are not supported.",
        ) from error
    program = inference.check_program(program)

    def export(positional: tuple[Any, ...], keywords: Keywords, dynamic: Any = None) -> Any:
        try:
            return _export(program.module(), positional, keywords, dynamic)
        except Exception as error:  # torch raises errors of many classes
            raise ConfigError(
                f"{file} cannot be exported for other shapes: {first_line(error)}",
                hint="Save it with `dynamic_shapes` that allow them.",
            ) from error

    return ExampleProgram(program=program, export=export, owner=file, saved=True)


def _load(file: str) -> Any:
    torch = _torch()
    # This import registers the operators of quantized programs.
    with contextlib.suppress(ImportError):
        importlib.import_module("torch.ao.quantization.fx._decomposed")
    load = hold_back_torch_messages()(torch.export.load)
    try:
        return load(file)
    except Exception as error:  # torch raises errors of many classes at unknown operators
        # torch only logs the operator's name, so it is in a note.
        if "transformers" not in "".join(getattr(error, "__notes__", ())):
            raise
        try:  # registers operators that TVM can read
            importlib.import_module("transformers.integrations.moe")
        except Exception:  # noqa: BLE001 - whatever an installed transformers raises
            raise error from None
        return load(file)


def save_program(program: Any, file: str) -> bool:
    """Write a program into a file, from which other processes of Chameleon read it."""
    try:
        with hold_back_torch_messages():
            _torch().export.save(program, file)
    except Exception as error:  # noqa: BLE001 - whatever torch raises at an object of the user's
        log.info("program_not_kept", problem=first_line(error))
        return False
    return True


def read_program(file: str) -> Any:
    """Read a program that another process saved, or return None if torch cannot."""
    # For example, its outputs may have a type that only the user's module registers.
    try:
        return _load(file)
    except Exception as error:  # noqa: BLE001 - whatever torch raises
        log.info("program_not_recalled", problem=first_line(error))
        return None


def _call_source(source: str) -> Any:
    function = named_object(source, "model")
    torch = _torch()
    try:
        # Other processes make the network again: random weights must be the same in all of them.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return function()
    except (Exception, SystemExit) as error:
        raise ConfigError(
            f"{source} failed: {first_line(error)}",
            hint="Call the function by hand to see the whole traceback.",
        ) from error


_torch = partial(import_library, "torch")


@contextlib.contextmanager
def hold_back_torch_messages() -> Iterator[None]:
    """Hold back what torch logs and prints, and add it to an exception as a note."""
    records: list[tuple[logging.Handler, logging.LogRecord]] = []
    out, err = io.StringIO(), io.StringIO()
    try:
        with (
            _hold_back_records(records),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            yield
    except Exception as error:
        # With tracebacks, because torch hides the cause of an error there.
        text = logging.Formatter().format
        logged = [text(record) for record in dict.fromkeys(record for _, record in records)]
        messages = [*logged, out.getvalue().strip(), err.getvalue().strip()]
        if any(messages):
            error.add_note("\n".join(filter(None, messages)))
        raise
    sys.stdout.write(out.getvalue())
    sys.stderr.write(err.getvalue())
    for handler, record in records:
        handler.handle(record)


@contextlib.contextmanager
def _hold_back_records(records: list[tuple[logging.Handler, logging.LogRecord]]) -> Iterator[None]:
    """Append what handlers of torch's loggers would show to a list instead."""
    loggers = logging.root.manager.loggerDict.items()
    named = [logger for name, logger in loggers if name.partition(".")[0] == "torch"]
    with contextlib.ExitStack() as stack:
        for handler in {h for logger in named for h in getattr(logger, "handlers", ())}:

            def hold(record: logging.LogRecord, handler: logging.Handler = handler) -> bool:
                records.append((handler, record))
                return False

            handler.addFilter(hold)
            stack.callback(handler.removeFilter, hold)
        yield


def export_for_shapes(program: Any, shapes: Shapes, export: Export, owner: str) -> Any:
    """Export a program for other input shapes."""
    # Example inputs are cropped or repeated, so that ids stay valid.
    tree = importlib.import_module("torch.utils._pytree")
    leaves, structure = tree.tree_flatten(program.example_inputs)
    names = [str(name) for name in program.graph_signature.user_inputs]
    tensors = input_tensors(program)
    _check_shapes(tensors, shapes, owner)
    asked = [node for node in program.graph.nodes if node.name in shapes]
    same = all(tuple(tensors[name].shape) == tuple(shape) for name, shape in shapes.items())
    if same and not any(map(_has_open_axes, asked)):
        return program
    resized = [
        _resize(leaf, shapes[name]) if name in shapes else leaf
        for name, leaf in zip(names, leaves, strict=True)
    ]
    positional, keywords = tree.tree_unflatten(resized, structure)
    return export(tuple(positional), dict(keywords))


def _has_open_axes(node: Any) -> bool:
    """Whether the shape of a program's input has symbols, even if its example has extents."""
    shape = getattr(node.meta.get("val"), "shape", ())
    return node.op == "placeholder" and not all(isinstance(extent, int) for extent in shape)


def example_arrays(program: Any) -> Arrays:
    """A program's example inputs as arrays; those in half precision in float32."""
    kinds = [getattr(_torch(), name) for name in HALVES]
    tensors = [tensor.detach() for tensor in input_tensors(program).values()]
    return [(one.float() if one.dtype in kinds else one).numpy() for one in tensors]


def input_tensors(program: Any) -> Keywords:
    """The tensors among a program's example inputs, by name, in the order of its arguments."""
    tree = importlib.import_module("torch.utils._pytree")
    names, leaves = program.graph_signature.user_inputs, tree.tree_leaves(program.example_inputs)
    return {
        str(name): leaf
        for name, leaf in zip(names, leaves, strict=True)
        if isinstance(leaf, _torch().Tensor)
    }


def _check_shapes(tensors: Mapping[str, Any], shapes: Shapes, owner: str) -> None:
    found = ", ".join(f"{name}: {list(tensor.shape)}" for name, tensor in tensors.items())
    for name, shape in shapes.items():
        if name not in tensors:
            raise ConfigError(
                f"{owner} has no input {name!r}{words.did_you_mean(name, tensors)}",
                hint=f"Its inputs are {found}.",
            )
        if len(shape) != tensors[name].ndim or 0 in tensors[name].shape:
            raise ConfigError(
                f"input {name!r} of {owner} is {list(tensors[name].shape)} in the example, which "
                f"cannot be made {list(shape)}",
                hint=f"Give as many extents as it has axes. Its inputs are {found}.",
            )


def branch_extents(
    program: Any, export: Export, axes: Collection[tuple[str, int]], extents: range
) -> set[int]:
    """Extents on both sides of each branch that a network takes by the extent of some axes.

    Args:
        program: The program for one extent, which is larger than ``extents``.
        export: The function that exported it.
        axes: Pairs of an input's name and an axis; they all have the same extent.
        extents: The extents to look for branches in.

    Returns:
        For each condition that torch met when it exported the network: the largest extent that does
        not meet the condition, and the next extent.
    """
    torch = _torch()
    sympy = importlib.import_module("sympy")
    collection = torch.export.ShapesCollection()
    for name, tensor in input_tensors(program).items():
        own = {axis: torch.export.Dim.AUTO for input_, axis in axes if input_ == name}
        if own:
            collection[tensor] = own
    try:
        opened = export(*program.example_inputs, collection)
    except ConfigError as error:
        log.info("branches_unknown", problem=str(error))
        return set()
    values = {node.name: node.meta.get("val") for node in opened.graph.nodes}
    open_extents = [values[name].shape[axis] for name, axis in axes if name in values]
    symbolic = [extent for extent in open_extents if isinstance(extent, torch.SymInt)]
    if not symbolic:
        return set()
    symbols = {extent.node.expr for extent in symbolic}
    step = max(1, len(extents) // _CHECKED_EXTENTS)
    found: set[int] = set()
    for guard in {guard.expr for guard in symbolic[0].node.shape_env.guards}:
        if not guard.free_symbols or not guard.free_symbols <= symbols:
            continue
        named = {int(number) + near for number in guard.atoms(sympy.Integer) for near in (-1, 0, 1)}
        for extent in sorted({*extents[::step], *named.intersection(extents)}, reverse=True):
            if _is_false(guard, dict.fromkeys(symbols, sympy.Integer(extent))):
                found |= {extent, extent + 1}
                break
    return found.intersection(extents)


_CHECKED_EXTENTS = 256
"""Number of extents for which a condition is evaluated, besides those near a number in it."""


def _is_false(guard: Any, values: Mapping[Any, Any]) -> bool:
    """Whether a condition of torch's export does not hold for some extents."""
    try:
        return bool(guard.xreplace(values) == importlib.import_module("sympy").false)
    except Exception as error:  # noqa: BLE001 - such as a division by zero in a function of torch's
        log.info("condition_not_evaluated", condition=str(guard), problem=first_line(error))
        return False


def _resize(example: Any, shape: Sequence[int]) -> Any:
    for axis, extent in enumerate(shape):
        indices = _torch().arange(extent) % example.shape[axis]
        example = example.index_select(axis, indices)
    return example


def check_saved_shapes(program: Any, shapes: Shapes, file: str) -> None:
    """Check that a saved program takes inputs of other shapes."""
    for node in program.graph.nodes:
        requested = shapes.get(node.name) if node.op == "placeholder" else None
        for axis, (extent, known) in enumerate(
            zip(requested or (), getattr(node.meta.get("val"), "shape", ()), strict=False)
        ):
            if isinstance(known, int) and known != extent:
                raise ConfigError(
                    f"{file} was saved with {known} as axis {axis} of {node.name!r}, and {extent} "
                    "is asked for",
                    hint="Save it with `dynamic_shapes` of torch.export.export for that axis, or "
                    "name the function that makes the network instead of the file.",
                )
