"""Reads networks from ONNX files, and checks the files first."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

import attrs
from chameleon_core.api import words
from chameleon_core.plugin_api import ConfigError, PresetRecord
from chameleon_tvm.api import BFLOAT16, first_line

from chameleon_networks._importers.onnx.quantized_operators import (
    inline_functions,
    is_quantized_model,
    to_qdq,
)
from chameleon_networks._importers.source_checks import (
    import_library,
    missing_onnx_file,
    offered_network,
)
from chameleon_networks._source_location import ImportedGraph

_OPEN_EXTENT, _OPEN_PIXELS = 128, 224
"""Extents that ``chameleon init`` chooses for open axes after the first: sequences and images."""
_IMAGE_RANK = 4


def onnx_models(folder: Path, file: str) -> Iterator[PresetRecord]:
    """Offer an ONNX file as a model for ``chameleon init``, with extents for its open axes."""
    if not file.endswith(".onnx"):
        return
    inputs: dict[str, list[int | str]] = {}
    with contextlib.suppress(Exception):  # a run says why it cannot read the file
        inputs = _inputs(_onnx().load(str(folder / file), load_external_data=False))
    extents: dict[str, int] = {}
    shapes = {}
    for name, shape in inputs.items():
        usual = _OPEN_PIXELS if len(shape) == _IMAGE_RANK else _OPEN_EXTENT
        chosen = [
            extents.setdefault(extent if extent != "?" else f"{name} {axis}", usual if axis else 1)
            if isinstance(extent, str)
            else extent
            for axis, extent in enumerate(shape)
        ]
        if chosen != shape:
            shapes[name] = chosen
    yield offered_network(file, {"onnx": file}, shapes)


def onnx_graph(file: str, shapes: Mapping[str, Sequence[int]]) -> ImportedGraph:
    """Read the network of an ONNX file into Relax."""
    model = _read(file)
    _check_shapes(model, file, shapes)
    _check_types(model, file, _onnx())
    try:
        from chameleon_networks._importers.onnx.importer import import_model  # noqa: PLC0415 - needs onnx

        return import_model(to_qdq(model), shapes)
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(
            f"the compiler cannot read {file}: {first_line(error)}",
            hint="Fix open shapes under `shapes`; onnx.shape_inference may tell more.",
        ) from error


def _read(file: str, *, load_external_data: bool = True) -> Any:
    """Read and check the model of an ONNX file."""
    onnx = _onnx()
    try:
        model = onnx.load(file, load_external_data=load_external_data)
        sort_nodes(model.graph)
        # The checker would search external data in the working folder.
        if load_external_data or not any(_field_values(model, "external_data")):
            _check(model)
    except FileNotFoundError as error:
        raise missing_onnx_file(file) from error
    except Exception as error:
        raise ConfigError(
            f"{file} is no valid ONNX file: {first_line(error)}",
            hint="Check it with onnx.checker.check_model; it may be cut off.",
        ) from error
    return model


def _check(model: Any) -> None:
    """Raise an error if a model is not valid; outputs may lack shapes, as in onnxruntime."""
    kinds = [proto.type for proto in model.graph.output]
    tensors = [kind.tensor_type for kind in kinds if kind.WhichOneof("value") == "tensor_type"]
    without = [tensor for tensor in tensors if not tensor.HasField("shape")]
    for tensor in without:
        tensor.shape.SetInParent()
    _onnx().checker.check_model(model)
    for tensor in without:
        tensor.ClearField("shape")


def sort_nodes(graph: Any) -> None:
    """Sort graphs that have nodes before what they read, as onnxruntime's float16 files have."""
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                sort_nodes(inner)
    nodes = list(graph.node)
    makers = {name: index for index, node in enumerate(nodes) for name in node.output if name}
    reads = {
        index: {makers[name] for name in _names_read(node) if name in makers}
        for index, node in enumerate(nodes)
    }
    if any(max(before, default=-1) > index for index, before in reads.items()):
        try:
            order = [*TopologicalSorter(reads).static_order()]
        except CycleError as error:
            cycle = " -> ".join(nodes[i].name or nodes[i].op_type for i in error.args[1])
            raise ValueError(f"its nodes form a cycle: {cycle}") from error
        del graph.node[:]
        graph.node.extend(nodes[index] for index in order)


def _names_read(node: Any) -> set[str]:
    """The names that a node reads from its graph, also in the graphs inside of the node."""
    names = set(node.input)
    for attribute in node.attribute:
        for inner in (attribute.g, *attribute.graphs):
            own = {name for inner_node in inner.node for name in inner_node.output}
            own.update(inner_node.name for inner_node in (*inner.input, *inner.initializer))
            names.update(*(_names_read(inner_node) - own for inner_node in inner.node))
    return names


@attrs.frozen(kw_only=True)
class OnnxFacts:
    """Facts about the network in an ONNX file.

    Attributes:
        inputs: The shapes of the inputs, by name; an extent without a number is a string.
        outputs: The names of the outputs.
        ranges: The smallest and the largest number of each integer input that is an index, the
            length of a sequence, or a divisor. The largest index is 0 if no table is constant.
        is_quantized: Whether the network quantizes or dequantizes tensors.
    """

    inputs: Mapping[str, list[int | str]]
    outputs: Sequence[str]
    ranges: Mapping[str, tuple[int, int]]
    is_quantized: bool


def onnx_facts(file: str) -> OnnxFacts:
    """Read the facts about the network in an ONNX file, without its external data."""
    model = _read(file, load_external_data=False)
    return OnnxFacts(
        inputs=_inputs(model),
        outputs=[output.name for output in model.graph.output],
        ranges=_ranges(model.graph),
        is_quantized=is_quantized_model(model),
    )


_MOVES = frozenset({"Cast", "Expand", "Identity", "Reshape", "Squeeze", "Unsqueeze"})
"""Operators whose output has the numbers of their first input."""


_LENGTHS: Mapping[str, tuple[int, tuple[str, ...]]] = {
    **dict.fromkeys(("LSTM", "GRU", "RNN"), (4, ("layout",))),
    "ReverseSequence": (1, ("time_axis",)),
}
"""Operators with lengths of sequences: the place of these, and the attribute with the axis of time.
It is axis 0 if there is no such attribute; with ``layout`` 1, batches come first."""


def _ranges(graph: Any) -> dict[str, tuple[int, int]]:
    """The smallest and the largest number of inputs that are indices, lengths or divisors."""
    tables = {tensor.name: tensor.dims for tensor in graph.initializer}
    sources: dict[str, str] = {}
    divisors: set[str] = set()
    lengths: dict[str, int] = {}
    shapes = {
        info.name: {
            axis: dim.dim_value
            for axis, dim in enumerate(info.type.tensor_type.shape.dim)
            if dim.dim_value
        }
        for info in (*graph.input, *graph.value_info)
    }
    indices: dict[str, int] = {}
    for node in graph.node:
        reads = [sources.get(name, name) for name in node.input]
        if node.op_type in _MOVES:
            sources[node.output[0]] = reads[0]
        elif node.op_type in {"Div", "Mod", "Reciprocal"}:
            divisors.add(reads[-1])
        elif node.op_type.startswith(("Gather", "Scatter")):
            most = 0  # index 0 is valid in any table
            if node.op_type == "Gather" and node.input[0] in tables:
                axis = next((attribute.i for attribute in node.attribute), 0)
                most = tables[node.input[0]][axis] - 1
            indices[reads[1]] = min(most, indices.get(reads[1], most))
        elif node.op_type in _LENGTHS:
            place, times = _LENGTHS[node.op_type]
            axis = next((one.i for one in node.attribute if one.name in times), 0)
            if len(reads) > place and reads[place]:
                extent = shapes.get(reads[0], {}).get(axis, 1)
                lengths[reads[place]] = min(extent, lengths.get(reads[place], extent))
    # Divisors must not be 0; two different values suffice.
    return (
        {name: (0, most) for name, most in indices.items()}
        | {name: (1, most) for name, most in lengths.items()}
        | dict.fromkeys(divisors, (1, 2))
    )


def onnx_files(file: str) -> list[Path]:
    """An ONNX file and the files with its external data."""
    source = Path(file)
    model = _onnx().load(source, load_external_data=False)
    entries = _field_values(model, "external_data")
    names = sorted({entry.value for entry in entries if entry.key == "location"})
    return [source, *(source.parent / name for name in names)]


def _field_values(message: Any, name: str) -> Iterator[Any]:
    """The values of all fields of one name in a model, or in a part of it."""
    for field, value in message.ListFields():
        if field.name == name:
            yield from value
        elif field.message_type is not None:
            parts = [value] if hasattr(value, "ListFields") else value
            for part in parts:
                yield from _field_values(part, name)


def onnx_as_qdq(file: str) -> bytes:
    """The content of an ONNX file in QDQ form, for references."""
    # Frameworks' own int8 kernels may saturate on CPUs without VNNI.
    return bytes(to_qdq(_onnx().load(file)).SerializeToString())


def onnx_in_float64(file: str) -> Any:
    """The model of an ONNX file, with float64 for each float32."""
    onnx = _onnx()
    model = onnx.load(file)
    single, double = onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE

    def convert(message: Any) -> None:
        if isinstance(message, onnx.TensorProto) and message.data_type == single:
            numbers = onnx.numpy_helper.to_array(message).astype("float64")
            message.CopyFrom(onnx.numpy_helper.from_array(numbers, message.name))
            return
        if isinstance(message, onnx.TypeProto.Tensor) and message.elem_type == single:
            message.elem_type = double
        if isinstance(message, onnx.AttributeProto) and message.name in {"to", "dtype"}:
            message.i = double if message.i == single else message.i
        for field, value in message.ListFields():
            if field.message_type is not None:
                for part in [value] if hasattr(value, "ListFields") else value:
                    convert(part)

    convert(model)
    return model


def onnx_with_outputs(file: str, names: Sequence[str]) -> bytes:
    """The content of an ONNX file with intermediate values of its graph as outputs."""
    onnx = _onnx()
    model = inline_functions(to_qdq(onnx.load(file)))
    del model.graph.output[:]
    model.graph.output.extend(map(onnx.helper.make_empty_tensor_value_info, names))
    return bytes(model.SerializeToString())


def _inputs(model: Any) -> dict[str, list[int | str]]:
    """The shapes of the inputs that are no constants, by name. An open extent is a string."""
    constants = {proto.name for proto in model.graph.initializer}
    return {
        proto.name: [
            dim.dim_value if dim.HasField("dim_value") else dim.dim_param or "?"
            for dim in proto.type.tensor_type.shape.dim
        ]
        for proto in model.graph.input
        if proto.name not in constants
    }


def _check_shapes(model: Any, file: str, shapes: Mapping[str, Sequence[int]]) -> None:
    """Check that each given shape belongs to an input and fits the file, and that none is open."""
    inputs = _inputs(model)
    for name, shape in shapes.items():
        if name not in inputs:
            raise ConfigError(
                f"{file} has no input {name!r}{words.did_you_mean(name, inputs)}",
                hint=f"Its inputs are {', '.join(f'{one}: {inputs[one]}' for one in inputs)}.",
            )
        file_shape = inputs[name]
        fits = len(file_shape) == len(shape) and all(
            isinstance(fixed, str) or fixed == extent
            for fixed, extent in zip(file_shape, shape, strict=True)
        )
        if not fits:
            raise ConfigError(
                f"input {name!r} of {file} is {file_shape}, which {list(shape)} does not fit",
                hint="Under `shapes` only what the file leaves open can be chosen.",
            )
    dynamic = {
        name: shape
        for name, shape in inputs.items()
        if name not in shapes and any(isinstance(extent, str) for extent in shape)
    }
    if dynamic:
        listed = " and ".join(
            f"{name!r} is open: [{_shape_text(s)}]" for name, s in dynamic.items()
        )
        chosen = [f"{name}: [{_shape_text(s, '1')}]" for name, s in dynamic.items()]
        raise ConfigError(
            f"the shape of input {listed}",
            hint=f"Fix it: `model: {{onnx: {{source: {file}, shapes: {{{', '.join(chosen)}}}}}}}`. "
            "Several extents of an axis are `{buckets: [1, 8]}` or `{range: [1, 512]}`.",
        )


def _shape_text(shape: Sequence[int | str], word: str | None = None) -> str:
    """A shape as text. An open extent is shown as ``word``, or as the file's own name if None."""
    return ", ".join(
        str(word or extent) if isinstance(extent, str) else str(extent) for extent in shape
    )


def _check_types(model: Any, file: str, onnx: Any) -> None:
    """Check that no weights are in bfloat16, since ONNX Runtime cannot verify such a network."""
    kinds = {tensor.data_type for tensor in model.graph.initializer}
    if onnx.TensorProto.BFLOAT16 in kinds:
        raise ConfigError(
            f"the weights in {file} are in {BFLOAT16}, which onnxruntime cannot check",
            hint="Export the network in float32; a model of `torch` is converted by itself.",
        )


def _onnx() -> Any:
    return import_library("onnx")
