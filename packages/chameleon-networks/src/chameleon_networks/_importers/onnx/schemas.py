"""The definitions of operators in the ONNX standard: default attributes, and function bodies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from chameleon_networks._importers.onnx.nodes import Value, dtype_of, shape_of

_LATEST_OPSET = 2**31 - 1
STANDARD_DOMAINS = frozenset({"", "ai.onnx"})
"""The names of the standard's domain."""


def schema_of(node: Any, domain: str, opset: int = _LATEST_OPSET) -> Any | None:
    """The definition of a node's operator in the ONNX standard; None if there is none."""
    try:
        return onnx.defs.get_schema(node.op_type, opset, domain)
    except onnx.defs.SchemaError:
        return None


def attributes_of(node: Any, schema: Any) -> dict[str, Any]:
    """A node's attributes by name, with the standard's defaults for missing ones."""
    attributes = {}
    if schema is not None:
        for name, attribute in schema.attributes.items():
            if attribute.default_value.name:
                attributes[name] = _decode_attribute(
                    onnx.helper.get_attribute_value(attribute.default_value)
                )
    attributes.update(
        {
            item.name: _decode_attribute(onnx.helper.get_attribute_value(item))
            for item in node.attribute
        }
    )
    return attributes


def _decode_attribute(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, list):
        return tuple(_decode_attribute(item) for item in value)
    return value


def function_body(node: Any, schema: Any, inputs: Sequence[Value], opset: int) -> Any | None:
    """The standard's definition of a node's operator by simpler operators; None without one."""
    if schema is None:
        return None
    if schema.has_function:
        versions = [item for item in schema.function_opset_versions if item <= opset]
        if versions:
            raw = schema.get_function_with_opset_version(max(versions))
            return _parse_function(raw)
    if schema.has_context_dependent_function:
        versions = [v for v in schema.context_dependent_function_opset_versions if v <= opset]
        types = [_type_of(value).SerializeToString() for value in inputs]
        if versions:
            raw = schema.get_context_dependent_function_with_opset_version(
                max(versions), node.SerializeToString(), types
            )
            return _parse_function(raw)
    return None


def _parse_function(raw: bytes) -> Any | None:
    body = onnx.FunctionProto()
    body.ParseFromString(raw)
    return body if body.node else None


def _type_of(value: Value) -> Any:
    """The ONNX type of a value."""
    if value is None:
        return onnx.TypeProto()
    if isinstance(value, list):
        inner = _type_of(value[0]) if value else onnx.TypeProto()
        return onnx.helper.make_sequence_type_proto(inner)
    dtype = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype_of(value)))
    return onnx.helper.make_tensor_type_proto(dtype, shape_of(value))


def bind_attributes(node: Any, values: Mapping[str, Any], caller: Any) -> Any:
    """Copy a node of a function's body, and fill in the attributes that the caller passes."""
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    del copy.attribute[:]
    for item in node.attribute:
        if item.ref_attr_name and item.ref_attr_name not in values:
            continue
        attribute = copy.attribute.add()
        attribute.CopyFrom(values[item.ref_attr_name] if item.ref_attr_name else item)
        attribute.name = item.name
        if attribute.HasField("g"):
            nodes = [bind_attributes(inner, values, caller) for inner in attribute.g.node]
            del attribute.g.node[:]
            attribute.g.node.extend(nodes)
    copy.name = caller.name
    del copy.metadata_props[:]
    copy.metadata_props.extend(caller.metadata_props)
    return copy


def cast_like_to_cast(node: Any, dtype: str) -> Any:
    """Rewrite ``CastLike`` as ``Cast``, so that the cast of a constant can be folded."""
    cast = onnx.NodeProto()
    cast.CopyFrom(node)
    cast.op_type = "Cast"
    del cast.input[1:]
    number = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    cast.attribute.append(onnx.helper.make_attribute("to", number))
    return cast
