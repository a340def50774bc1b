"""JSON Schemas of annotated types: each allows what ``pipeline.structure`` accepts for the type."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from types import NoneType
from typing import Any

import attrs
from attrs import validators
from chameleon_core.api import to_json
from chameleon_core.plugin_api import form_of

Schema = dict[str, Any]
Classes = Callable[[str], Mapping[str, type]]
"""A function that returns the classes of a kind of plugin by name."""

DURATION = r"^\s*(?:\d+(?:\.\d+)?\s*(?:ms|d|h|m|s)\s*)+$"
"""Regular expression of a duration. It does not check that units go from large to small."""

NOTHING: Schema = {"not": {}}
"""The schema that no value fits."""

# attrs does not publish the classes of its validators, so they are taken from examples.
_NUMBER: Any = type(validators.ge(0))
_OPTIONAL: Any = type(validators.optional(validators.ge(0)))
_AND: Any = type(validators.and_(validators.ge(0)))
_IN: Any = type(validators.in_(()))
_LONGER: Any = type(validators.min_len(0))
_SHORTER: Any = type(validators.max_len(0))
_EACH: Any = type(validators.deep_iterable(validators.ge(0)))

_COMPARED = {">=": "minimum", ">": "exclusiveMinimum", "<=": "maximum", "<": "exclusiveMaximum"}


def bounds_of(validator: Any) -> Schema:  # noqa: PLR0911 - one return for each kind of validator
    """The keywords of JSON Schema for the values that a validator accepts.

    Keywords about numbers apply only to numbers, and keywords about lengths only to strings and
    lists. So no further keywords are needed if ``null`` or strings are allowed too.

    Args:
        validator: the validator of a field: None, one of ``attrs.validators``, or any function.
    """
    if isinstance(validator, _NUMBER):
        return {_COMPARED[validator.compare_op]: validator.bound}
    if isinstance(validator, _IN):
        return {"enum": list(validator.options)}
    if isinstance(validator, _LONGER):
        return {"minLength": validator.min_length, "minItems": validator.min_length}
    if isinstance(validator, _SHORTER):
        return {"maxLength": validator.max_length, "maxItems": validator.max_length}
    if isinstance(validator, _EACH):
        inner = bounds_of(validator.member_validator)
        return {**bounds_of(validator.iterable_validator), **({"items": inner} if inner else {})}
    if isinstance(validator, _OPTIONAL):
        bounds = bounds_of(validator.validator)
        return {**bounds, "enum": [*bounds["enum"], None]} if "enum" in bounds else bounds
    if isinstance(validator, _AND):
        joined: Schema = {}
        for part in validator._validators:  # noqa: SLF001 - attrs gives them no other way
            joined |= bounds_of(part)
        return joined
    return {}


_SCALARS: dict[type, str] = {
    int: "integer",
    float: "number",
    bool: "boolean",
    str: "string",
    Path: "string",
    NoneType: "null",
}


def tags_of(field: attrs.Attribute[Any], classes: Classes) -> Mapping[str, type] | None:
    """The classes by name from which a tagged option chooses; None if it is not tagged."""
    tagged = field.metadata.get("tagged")
    return classes(tagged) if isinstance(tagged, str) else tagged


def default_of(field: attrs.Attribute[Any], classes: Classes) -> Any:
    """The default of an option as JSON values, or ``attrs.NOTHING`` if it has none.

    A default that is computed from other options counts as no default.
    """
    default: Any = field.default
    if isinstance(default, attrs.Factory):  # type: ignore[arg-type]
        default = attrs.NOTHING if default.takes_self else default.factory()
    if default is attrs.NOTHING:
        return default
    return to_json(default, tags_of(field, classes), classes=classes)


class TypeSchemas:
    """Makes the JSON Schemas of options classes, and of the types of their fields.

    The metadata of a field may have keys that say which values the field takes. ``tagged`` means an
    object of a class that plugins registered, ``stages`` a list of stages, ``names`` a list of
    stages without options, and ``precisions`` dtypes.

    Args:
        classes: a function that returns the classes of a kind of plugin by name. It is called for
            fields with the key ``tagged``.
        stage: a function that returns the schema of a stage. Its arguments are the kind of the
            stage, and whether only the stage's name is allowed. It is called for fields with the
            key ``stages`` or ``names``.
        precisions: the dtypes that fields with the key ``precisions`` may have.
    """

    def __init__(
        self,
        classes: Classes,
        stage: Callable[[str, bool], Schema],
        precisions: Sequence[str] = (),
    ) -> None:
        self._classes = classes
        self._stage = stage
        self._precisions = [*precisions]

    def section(self, kind: type) -> Schema:
        """The schema of an options class: a mapping of its options, without other keys.

        Args:
            kind: an attrs class. If its annotations cannot be resolved, as in a broken plugin, its
                options may have any value.
        """
        resolved = True
        try:
            attrs.resolve_types(kind)
        except Exception:  # noqa: BLE001 - a fault of a plugin, which ``validate`` reports
            resolved = False
        fields = [field for field in attrs.fields(kind) if field.init]
        options = {field.alias: self._field(field, resolved=resolved) for field in fields}
        former = {
            field.metadata["former"]: field.alias for field in fields if "former" in field.metadata
        }
        earlier = {name: {**options[today], "deprecated": True} for name, today in former.items()}
        schema: Schema = {
            "type": "object",
            "properties": {**options, **earlier},
            "additionalProperties": False,
        }
        names = {today: name for name, today in former.items()}
        needed = [field.alias for field in fields if field.default is attrs.NOTHING]
        required = [name for name in needed if name not in names]
        either = [
            {"oneOf": [{"required": [name]}, {"required": [names[name]]}]}
            for name in needed
            if name in names
        ]
        schema |= {"required": required} if required else {}
        return {**schema, "allOf": either} if either else schema

    def opened(self, kind: type, section: Schema) -> Schema:
        """The schema of a section that may also be written as the value of its first option.

        An example is ``model: net.onnx`` (``expand_shorthand``).

        Args:
            kind: the options class.
            section: the schema of the section, or a reference to it.
        """
        fields = [field for field in attrs.fields(kind) if field.init]
        required = [field for field in fields if field.default is attrs.NOTHING]
        members: list[Schema] = [section]
        if not required:
            members.append({"type": "null"})
        if fields:
            first = (required or fields)[0]
            alone = self.section(kind)["properties"][first.alias]
            # Editors show the default at the option itself, below the section.
            alone = {key: value for key, value in alone.items() if key != "default"}
            members.append({"not": {"type": ["object", "null"]}, **alone})
        return {"anyOf": members} if len(members) > 1 else section

    def of(self, kind: Any) -> Schema:
        """The schema of an annotation."""
        form, inner = form_of(kind)
        if form in ("anything", "unknown"):
            return {}
        schema: Schema = getattr(self, form)(inner)
        return schema

    def scalar(self, kind: type) -> Schema:
        """The schema of a number, a string, a bool or null."""
        return {"type": _SCALARS[kind]}

    def choice(self, choices: Mapping[Any, Any]) -> Schema:
        """The schema of a value out of a list."""
        return {"enum": [*choices]}

    def union(self, kinds: tuple[Any, ...]) -> Schema:
        """The schema of a value of one of several types."""
        return _any_of([self.of(member) for member in kinds])

    def mapping(self, inner: Any) -> Schema:
        """The schema of a mapping with any keys."""
        return {"type": "object", "additionalProperties": self.of(inner)}

    def sequence(self, kind: tuple[type, Any]) -> Schema:
        """The schema of a list, tuple or set of any length."""
        origin, inner = kind
        schema: Schema = {"type": "array", "items": self.of(inner)}
        return {**schema, "uniqueItems": True} if issubclass(origin, AbstractSet) else schema

    def entries(self, kinds: tuple[Any, ...]) -> Schema:
        """The schema of a tuple of as many items as there are types."""
        items, count = [self.of(kind) for kind in kinds], len(kinds)
        return {"type": "array", "prefixItems": items, "minItems": count, "maxItems": count}

    def _field(self, field: attrs.Attribute[Any], *, resolved: bool) -> Schema:
        """The schema of one option: its type, its validators' limits, its help and its default."""
        schema: Schema = {}
        if field.metadata.get("help"):
            schema["description"] = field.metadata["help"]
        default = default_of(field, self._classes)
        if default is not attrs.NOTHING:
            schema["default"] = default
        if not resolved:
            return schema
        typed, bounds = self._type(field), bounds_of(field.validator)
        both = [schema["items"] for schema in (typed, bounds) if "items" in schema]
        items = {"items": both[0] if len(both) == 1 else {"allOf": both}} if both else {}
        return {**schema, **typed, **bounds, **items}

    def _type(self, field: attrs.Attribute[Any]) -> Schema:
        tags = tags_of(field, self._classes)
        if tags is not None:
            sub = self._tagged(tags)
            return {"type": "array", "items": sub} if form_of(field.type)[0] == "sequence" else sub
        if "stages" in field.metadata:
            return {"type": "array", "items": self._stage(field.metadata["stages"], False)}
        if "names" in field.metadata:
            return {"type": "array", "items": self._stage(field.metadata["names"], True)}
        schema = self.of(field.type)
        if field.metadata.get("precisions"):
            names: Schema = {"enum": self._precisions}
            alone = schema["type"] == "array"
            return schema | ({"items": names} if alone else {"enum": [*self._precisions, None]})
        if field.metadata.get("duration"):
            return _any_of([schema, {"type": "string", "pattern": DURATION}])
        return schema

    def _tagged(self, tags: Mapping[str, type]) -> Schema:
        """The schema of a mapping whose only key names a class."""
        return {
            "type": "object",
            "properties": {
                tag: self.opened(kind, self.section(kind)) for tag, kind in tags.items()
            },
            "additionalProperties": False,
            "minProperties": 1,
            "maxProperties": 1,
        }


def _any_of(members: list[Schema]) -> Schema:
    """The schema of a value that fits at least one of several schemas.

    Schemas with only a type are joined.
    """
    names: list[str] = []
    rest: list[Schema] = []
    for member in members:
        if set(member) == {"anyOf"}:
            rest += member["anyOf"]
        elif set(member) == {"type"}:
            names += [member["type"]] if isinstance(member["type"], str) else member["type"]
        else:
            rest.append(member)
    if names:
        rest.insert(0, {"type": names[0] if len(names) == 1 else names})
    return rest[0] if len(rest) == 1 else {"anyOf": rest}
