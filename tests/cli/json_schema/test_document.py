"""The schema of a pipeline where no preset gives anything."""

import json
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

import attrs
import pytest
from attrs import validators
from chameleon_cli._json_schema.document import pipeline_schema
from chameleon_cli._json_schema.types import TypeSchemas
from chameleon_core import hooks
from chameleon_core._pipeline.load import from_dict
from chameleon_core._pipeline.nodes import Node, PipelineError, expand_shorthand
from chameleon_core._pipeline.structure import Structurer
from chameleon_core._plugins import Registry
from chameleon_core._plugins.kinds import STAGES
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from synthetic import synthetic_document, synthetic_registry


def checked(registry):
    schema = pipeline_schema(registry)
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def refused(document, registry):
    try:
        from_dict(document, registry=registry)
    except PipelineError:
        return True
    return False


def test_a_pipeline_of_synthetic_stages_fits(tmp_path):
    registry = synthetic_registry()
    document = synthetic_document(tmp_path / "run")
    check = checked(registry)
    assert check.is_valid(document)
    expanded = dict(from_dict(document, registry=registry).document)
    assert check.is_valid(json.loads(json.dumps(expanded)))


@pytest.mark.parametrize(
    ("key", "instead"),
    [
        *((key, {}) for key in ("model", "target", *STAGES)),
        *((key, {key: {}}) for key in sorted(STAGES)),
    ],
)
def test_what_no_preset_gives_is_required_with_its_name(key, instead, tmp_path):
    registry = synthetic_registry()
    document = synthetic_document(tmp_path / "run")
    del document[key]
    document |= instead
    assert refused(document, registry)
    assert not checked(registry).is_valid(document)


def test_core_alone_has_a_schema_which_nothing_fits():
    registry = Registry.from_plugins([("chameleon-tuner-core", hooks)])
    assert list(pipeline_schema(registry)["properties"]) == list(registry.pipeline_keys)
    assert not checked(registry).is_valid({"model": {"operators": []}, "target": "native"})


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


@attrs.frozen(kw_only=True)
class Inner:
    size: int = attrs.field(validator=validators.ge(1))
    share: float = attrs.field(default=0.5, validator=[validators.ge(0.0), validators.lt(1.0)])


@attrs.frozen(kw_only=True)
class Options:
    count: int = attrs.field(default=4, validator=validators.ge(0), metadata={"help": "how many"})
    limit: float | None = attrs.field(
        default=None, validator=validators.optional(validators.gt(0.0)), metadata={"duration": True}
    )
    at_once: int | Literal["auto"] = "auto"
    colour: Colour = Colour.RED
    mode: str = attrs.field(default="a", validator=validators.in_(("a", "b")))
    switch: bool = False
    names: tuple[str, ...] = attrs.field(default=(), validator=validators.max_len(2))
    widths: tuple[int, ...] = attrs.field(
        default=(1,), validator=validators.deep_iterable(validators.ge(1))
    )
    pair: tuple[int, str] = (1, "x")
    table: dict[str, float] = attrs.field(factory=dict)
    inner: Inner | None = None
    file: Path | None = attrs.field(default=None, metadata={"path": True})
    anything: Any = None
    entries: tuple[Any, ...] = attrs.field(
        default=(), metadata={"tagged": {"inner": Inner, "other": Inner}}
    )


def schemas():
    return TypeSchemas(lambda _: {}, lambda *_: {})


SECTION = schemas().section(Options)
CHECK = Draft202012Validator(SECTION)


def structured(document, kind=Options):
    node = expand_shorthand(Node.of(document, "test"), kind)
    try:
        return Structurer(classes=lambda _: {}).make(node, kind, "test")
    except PipelineError:
        return None


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 3),
    st.sampled_from([0.5, -1.5, "auto", "red", "a", "20m", "1.5s", "x", ""]),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(["size", "share", "inner", "other", "odd"]), inner, max_size=2
        ),
    ),
    max_leaves=6,
)


def test_it_is_a_schema():
    Draft202012Validator.check_schema(SECTION)


@given(st.sampled_from([field.alias for field in attrs.fields(Options)]), VALUES)
def test_an_option_is_taken_by_both_or_by_neither(option, value):
    document = {option: value}
    assert CHECK.is_valid(document) == (structured(document) is not None)


@given(st.dictionaries(st.sampled_from(["size", "share", "odd"]), SCALARS))
def test_missing_and_unknown_options_are_refused_by_both(document):
    check = Draft202012Validator(schemas().section(Inner))
    assert check.is_valid(document) == (structured(document, Inner) is not None)


@given(VALUES)
def test_a_value_alone_is_the_first_required_option(value):
    result = schemas()
    check = Draft202012Validator(result.opened(Inner, result.section(Inner)))
    assert check.is_valid(value) == (structured(value, Inner) is not None)


def test_help_and_defaults_are_told():
    assert SECTION["properties"]["count"] == {
        "description": "how many",
        "default": 4,
        "type": "integer",
        "minimum": 0,
    }


def test_annotations_that_cannot_be_resolved_are_left_open():
    @attrs.frozen(kw_only=True)
    class Broken:
        size: "Nowhere" = 1  # noqa: F821 - there is no such class

    section = schemas().section(Broken)
    assert section["properties"] == {"size": {"default": 1}}
    assert not Draft202012Validator(section).is_valid({"odd": 1})


@pytest.mark.parametrize("text", ["20m", "1h30m", "90s", "5 ms", "m", "1", "x1m", ""])
def test_durations(text):
    document = {"limit": text}
    assert CHECK.is_valid(document) == (structured(document) is not None)
