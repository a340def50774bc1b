"""Networks of torch as exported programs: built in, of the user's, or saved."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import io
import logging
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import structlog
from chameleon_core.errors import ConfigError
from chameleon_core.words import did_you_mean
from chameleon_tvm.sources import named_object
from chameleon_tvm.words import first_line

from chameleon_networks.importers.builtin.records import NETWORKS
from chameleon_networks.importers.torch.lowering.origins import location_of
from chameleon_networks.importers.torch.training import evaluated
from chameleon_networks.source_location import SourceLocation

Shapes = Mapping[str, Sequence[int]]
Export = Callable[[tuple[Any, ...], dict[str, Any]], Any]
"""Makes a program from positional and keyword inputs."""


def with_shapes(program: Any, shapes: Shapes, export: Export, owner: str) -> Any:
    """The program of the same network for inputs of the shapes asked for.

    An example is cropped, or repeated from its start, along each axis, so that the ids in it stay
    valid ones.

    Args:
        program: the ``torch.export.ExportedProgram`` for the example inputs.
        shapes: of inputs by name.
        export: exports the network with other inputs.
        owner: the network, for errors.

    Raises:
        ConfigError: it has no such input, or one of another rank; or ``export`` raises it.
    """
    tree = importlib.import_module("torch.utils._pytree")
    leaves, structure = tree.tree_flatten(program.example_inputs)
    names = [str(name) for name in program.graph_signature.user_inputs]
    tensors = input_tensors(program)
    _check(tensors, shapes, owner)
    if all(tuple(tensors[name].shape) == tuple(shape) for name, shape in shapes.items()):
        return program
    resized = [
        _resized(leaf, shapes[name]) if name in shapes else leaf
        for name, leaf in zip(names, leaves, strict=True)
    ]
    positional, keywords = tree.tree_unflatten(resized, structure)
    return export(tuple(positional), dict(keywords))


def input_tensors(program: Any) -> dict[str, Any]:
    """The tensors among a program's example inputs by name, in the order of its placeholders."""
    torch = importlib.import_module("torch")
    tree = importlib.import_module("torch.utils._pytree")
    names, leaves = program.graph_signature.user_inputs, tree.tree_leaves(program.example_inputs)
    return {
        str(name): leaf
        for name, leaf in zip(names, leaves, strict=True)
        if isinstance(leaf, torch.Tensor)
    }


def _check(tensors: Mapping[str, Any], shapes: Shapes, owner: str) -> None:
    said = ", ".join(f"{name}: {list(tensor.shape)}" for name, tensor in tensors.items())
    for name, shape in shapes.items():
        if name not in tensors:
            raise ConfigError(
                f"{owner} has no input {name!r}{did_you_mean(name, tensors)}",
                hint=f"Its inputs are {said}.",
            )
        if len(shape) != tensors[name].ndim or 0 in tensors[name].shape:
            raise ConfigError(
                f"input {name!r} of {owner} is {list(tensors[name].shape)} in the example, which "
                f"cannot be made {list(shape)}",
                hint=f"Give as many extents as it has axes. Its inputs are {said}.",
            )


def _resized(example: Any, shape: Sequence[int]) -> Any:
    torch = importlib.import_module("torch")
    for axis, extent in enumerate(shape):
        places = torch.arange(extent) % example.shape[axis]
        example = example.index_select(axis, places)
    return example


def check_saved(program: Any, shapes: Shapes, file: str) -> None:
    """See that a saved program takes inputs of other shapes.

    Args:
        program: the ``torch.export.ExportedProgram`` of the file.
        shapes: of inputs by name.
        file: the file.

    Raises:
        ConfigError: it was exported for one shape alone.
    """
    for node in program.graph.nodes:
        asked = shapes.get(node.name) if node.op == "placeholder" else None
        for axis, (extent, known) in enumerate(
            zip(asked or (), getattr(node.meta.get("val"), "shape", ()), strict=False)
        ):
            if isinstance(known, int) and known != extent:
                raise ConfigError(
                    f"{file} was saved with {known} as axis {axis} of {node.name!r}, and {extent} "
                    "is asked for",
                    hint="Save it with `dynamic_shapes` of torch.export.export for that axis, or "
                    "name the function that makes the network instead of the file.",
                )


log = structlog.get_logger()


def without_dropout(program: Any) -> Any:
    """The program with dropout that was exported for training left out, which is said.

    Args:
        program: a ``torch.export.ExportedProgram``, changed in place.
    """
    found = [node for node in program.graph.nodes if _drops(node)]
    for node in found:
        names = _argument_names(node)
        off = next((name for name in ("train", "training") if name in names), "dropout_p")
        value, place = 0.0 if off == "dropout_p" else False, names.index(off)
        if place < len(node.args):
            node.args = (*node.args[:place], value, *node.args[place + 1 :])
        else:
            node.kwargs = {**node.kwargs, off: value}
    if found:
        program.graph_module.recompile()
        log.warning(
            "dropout_left_out",
            operators=len(found),
            why="the network leaves out numbers at random, as in training; a delivered network "
            "does not",
        )
    return program


def without_chance(program: Any) -> Any:
    """The program, if it computes the same each time.

    Args:
        program: a ``torch.export.ExportedProgram``.

    Raises:
        ConfigError: it draws random numbers; says where.
    """
    for node in program.graph.nodes:
        if node.op == "call_function" and _draws(node):
            raise ConfigError(
                f"{location_of(node).sentence} draws random numbers, so that the network gives "
                "other answers each time and none can be checked",
                hint="Make them an input of the network, or leave them out.",
            )
    return program


def _draws(node: Any) -> bool:
    """Whether an operator draws random numbers, as dropout does not unless it is for training."""
    torch = importlib.import_module("torch")
    if torch.Tag.nondeterministic_seeded not in getattr(node.target, "tags", ()):
        return False
    schema = _schema(node)
    values = {one.name: one.default_value for one in schema}
    values |= dict(zip((one.name for one in schema), node.args, strict=False)) | node.kwargs
    chances = [values[name] for name in ("p", "dropout", "dropout_p") if name in values]
    training = [values[name] for name in ("train", "training") if name in values]
    if training:
        return any(training) and (not chances or any(chances))
    return not chances or any(chances)


def _drops(node: Any) -> bool:
    """Whether an operator leaves out numbers at random, beside what it computes or alone."""
    if node.op != "call_function" or not _draws(node):
        return False
    named = {"dropout", "dropout_p"} & {*_argument_names(node)}
    return "dropout" in node.target.__name__ or bool(named)


def _argument_names(node: Any) -> list[str]:
    return [str(one.name) for one in _schema(node)]


def _schema(node: Any) -> Any:
    return node.target._schema.arguments  # noqa: SLF001 - there is no other way to ask


@contextlib.contextmanager
def torch_messages_held_back() -> Iterator[None]:
    """Hold back what torch logs and what is printed meanwhile.

    Where nothing is raised it is all told at the end. Otherwise it becomes a note of the exception,
    which a traceback shows.
    """
    loggers = [_HeldBack(logger) for logger in _torch_loggers()]
    out, err = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            yield
    except Exception as error:
        logged = [record.getMessage() for one in loggers for record in one.records]
        said = [*logged, out.getvalue().strip(), err.getvalue().strip()]
        if any(said):
            error.add_note("\n".join(filter(None, said)))
        raise
    else:
        sys.stdout.write(out.getvalue())
        sys.stderr.write(err.getvalue())
        for one in loggers:
            one.tell()
    finally:
        for one in loggers:
            one.release()


class _HeldBack(logging.Handler):
    """Takes the place of a logger's handlers and keeps its records.

    Args:
        logger: one with handlers.
    """

    def __init__(self, logger: logging.Logger) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []
        self._logger = logger
        self._handlers = logger.handlers
        logger.handlers = [self]

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def tell(self) -> None:
        """Give the records to those whose place this one took."""
        for record in self.records:
            for handler in self._handlers:
                if record.levelno >= handler.level:
                    handler.handle(record)

    def release(self) -> None:
        """Give the others their place back."""
        self._logger.handlers = self._handlers


def _torch_loggers() -> list[logging.Logger]:
    """Those of torch that have handlers."""
    return [
        logger
        for name, logger in logging.root.manager.loggerDict.items()
        if name.partition(".")[0] == "torch"
        and isinstance(logger, logging.Logger)
        and logger.handlers
    ]


def builtin_program(
    name: str, batch: int, dtype: str = "float32", shapes: Shapes = MappingProxyType({})
) -> Any:
    """A built-in network with random weights.

    Args:
        name: a key of ``NETWORKS``.
        batch: samples per inference.
        dtype: of weights and images.
        shapes: of inputs that are to have others than usual, by name.

    Raises:
        ConfigError: it cannot have such inputs.
    """
    torch = _torch()
    from chameleon_networks.importers.builtin.weights import initialise  # noqa: PLC0415 - needs torch

    record = NETWORKS[name]
    module, _, function = record.factory.partition(":")
    network = initialise(getattr(importlib.import_module(module), function)())
    network = network.to(getattr(torch, dtype))
    shape = (batch, *record.inputs)
    if record.kind == "tokens":
        # The largest id there is says how far random ones may go.
        example = torch.full(shape, record.vocabulary - 1, dtype=torch.int64)
    else:
        example = torch.zeros(shape, dtype=getattr(torch, dtype))
    return _shaped(network, (example,), {}, shapes, name)


def need_torch() -> None:
    """See that torch is installed, without the seconds that its import takes.

    Raises:
        ConfigError: it is not.
    """
    if importlib.util.find_spec("torch") is None:
        raise _no_torch()


def check_torch_source(source: str) -> None:
    """See that a saved program is there, or that a function can be imported; neither is read.

    Args:
        source: a file ``.pt2``, ``path.py:function`` or ``package.module:function``.

    Raises:
        ConfigError: it is not there.
    """
    if not source.endswith(".pt2"):
        if not callable(named_object(source, "model")):
            hint = "Name a function that returns the torch module and its example inputs."
            raise ConfigError(f"model: {source} is no function", hint=hint)
    elif not Path(source).is_file():
        hint = "Name a program saved by torch.export, relative to the pipeline."
        raise ConfigError(f"there is no file {source}", hint=hint)


def exported(source: str, shapes: Shapes = MappingProxyType({})) -> Any:
    """The program of a user's function that returns a module and example inputs.

    Args:
        source: ``path.py:function`` or ``package.module:function``.
        shapes: of inputs that are to have others than the examples, by name.

    Raises:
        ConfigError: there is no such function, it fails, or torch cannot export its network.
    """
    torch = _torch()
    made = _made(source)
    if not isinstance(made, tuple) or len(made) != 2:  # noqa: PLR2004
        raise ConfigError(
            f"{source} returned a {type(made).__name__} instead of a pair",
            hint="Return the torch module and a tuple of example inputs.",
        )
    network, inputs = made
    if not isinstance(network, torch.nn.Module):
        raise ConfigError(
            f"{source} returned a {type(network).__name__} instead of a torch module",
            hint="Return the torch module and a tuple of example inputs.",
        )
    _check_float(network, source)
    program = _shaped(evaluated(network), *_arguments(inputs), shapes, source)
    return without_chance(without_dropout(program))


def _check_float(network: Any, source: str) -> None:
    """See that a network is one of modules in Python that compute with floats."""
    if isinstance(network, _torch().jit.ScriptModule):
        raise ConfigError(
            f"{source} returned a TorchScript module, which torch does not export",
            hint="Return the module that was traced or scripted.",
        )
    kinds = [type(module) for module in network.modules()]
    # `torch.ao.nn.quantized` and its like; a user's own module may have such a name, too.
    names = [k.__name__ for k in kinds if re.match(r"torch\b.*\bquantized\b", k.__module__)]
    if names:
        raise ConfigError(
            f"{source} returned a quantized network, one with a {names[0]}",
            hint="Return the network as it was before, in float32, or quantized by pt2e "
            "(prepare_pt2e, convert_pt2e).",
        )


def _shaped(
    network: Any, positional: tuple[Any, ...], keywords: dict[str, Any], shapes: Shapes, owner: str
) -> Any:
    """The program of a network for the shapes asked for, else for those of its example inputs."""
    torch = _torch()

    def export(positional: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        try:
            with torch.no_grad(), torch_messages_held_back():
                return torch.export.export(network, positional, keywords)
        except Exception as error:
            raise ConfigError(
                f"torch cannot export the network of {owner}: {first_line(error)}",
                hint=_unexportable(error),
            ) from error

    program = export(positional, keywords)
    return with_shapes(program, shapes, export, owner) if shapes else program


def _arguments(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Example inputs by place and by name: a tensor, a sequence, a mapping, or a pair of both."""
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    if not isinstance(inputs, tuple | list):
        return (inputs,), {}
    pair = 2
    if len(inputs) == pair and isinstance(inputs[0], tuple | list) and isinstance(inputs[1], dict):
        return tuple(inputs[0]), inputs[1]
    return tuple(inputs), {}


_ABOUT_VALUES = ("data-dependent", "unbacked", "fake tensor", "faketensor")
"""In torch's words for code that needs the values of tensors while it is exported."""


def _unexportable(error: Exception) -> str:
    """Where the code is that torch refuses, and what to do about it."""
    lines = [line.strip() for line in str(error).splitlines()]
    frames = [place for place, line in enumerate(lines) if line.startswith("File ")]
    written = ""
    if frames:
        last = lines[frames[-1] : frames[-1] + 2]
        written = f"It is about {', '.join(last)}. "
    words = str(error).lower()
    if not any(one in words for one in _ABOUT_VALUES):
        return (
            f"{written}Call torch.export.export(network, inputs) by hand for its whole traceback."
        )
    return (
        f"{written}What the code does must not depend on the values of tensors: write such an "
        "`if` with torch.where, or decide it outside of the network."
    )


def loaded(file: str, shapes: Shapes = MappingProxyType({})) -> Any:
    """A program saved by ``torch.export.save``.

    Args:
        file: the file.
        shapes: of inputs that are to have others than the examples it was saved with, by name.

    Raises:
        ConfigError: the file is none, or of a program that takes no such inputs.
    """
    torch = _torch()
    program = _loaded(file)
    if not shapes:
        return program
    check_saved(program, shapes, file)

    def export(positional: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        try:
            with torch.no_grad(), torch_messages_held_back():
                return torch.export.export(program.module(), positional, keywords)
        except Exception as error:
            raise ConfigError(
                f"{file} cannot be exported for other shapes: {first_line(error)}",
                hint="Save it with `dynamic_shapes` that allow them.",
            ) from error

    return with_shapes(program, shapes, export, file)


def _loaded(file: str) -> Any:
    torch = _torch()
    # Torch knows the steps of a quantized program once this is imported.
    with contextlib.suppress(ImportError):
        importlib.import_module("torch.ao.quantization.fx._decomposed")
    try:
        program = torch.export.load(file)
    except Exception as error:
        raise ConfigError(
            f"{file} is no program saved by torch.export: {first_line(error)}",
            hint="Save one with torch.export.save(torch.export.export(module, inputs), file).",
        ) from error
    return without_chance(without_dropout(program))


def example_tensors(program: Any) -> list[Any]:
    """The tensors among a program's example inputs, in the order of its placeholders."""
    tree = importlib.import_module("torch.utils._pytree")
    tensor = _torch().Tensor
    return [one for one in tree.tree_leaves(program.example_inputs) if isinstance(one, tensor)]


def example_names(program: Any) -> list[str]:
    """Names of what ``example_tensors`` returns."""
    return list(input_tensors(program))


def torch_module(program: Any) -> tuple[Any, dict[str, SourceLocation]]:
    """An exported program as a Relax module with constant weights.

    Returns:
        The module, and for the name of each variable in it the place that it is from.

    Raises:
        ConfigError: TVM cannot read it; names the operator to blame and its place.
    """
    from chameleon_networks.graph.relaxed import relax  # noqa: PLC0415, F401 - TVM without torch first

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from chameleon_networks.importers.torch.lowering.importing import imported  # noqa: PLC0415

        try:
            return imported(program)
        except ConfigError as error:
            if _double(program):
                raise ConfigError(str(error), hint=_IN_FLOAT32) from error
            raise
        except Exception as error:
            known = "Try torch.export.export(...).run_decompositions() by hand."
            raise ConfigError(
                f"the compiler cannot read the network: {first_line(error)}",
                hint=_IN_FLOAT32 if _double(program) else known,
            ) from error


_IN_FLOAT32 = "Its weights are torch.float64; return the module in float32 (`.float()`)."


def _double(program: Any) -> bool:
    return any(str(value.dtype) == "torch.float64" for value in program.state_dict.values())


def _made(source: str) -> Any:
    function = named_object(source, "model")
    torch = _torch()
    try:
        # Processes that run the network beside this one make it again: random weights have to be
        # the same in all of them.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return function()
    except Exception as error:
        raise ConfigError(
            f"{source} failed: {first_line(error)}",
            hint="Call the function by hand to see the whole traceback.",
        ) from error


def _torch() -> Any:
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        raise _no_torch() from error


def _no_torch() -> ConfigError:
    return ConfigError("torch is not installed", hint="Install it: pip install torch.")
