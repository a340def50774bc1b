"""The schema of a pipeline where no preset gives anything."""

from __future__ import annotations

import json

import pytest
from chameleon_cli.json_schema.document import pipeline_schema
from chameleon_core import hooks
from chameleon_core.pipeline.load import from_dict
from chameleon_core.pipeline.nodes import PipelineError
from chameleon_core.pipeline.resolve import KEYS, STAGES
from chameleon_core.plugins import Registry
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


@pytest.mark.parametrize("key", ["model", "target", *STAGES])
def test_what_no_preset_gives_is_required(key, tmp_path):
    registry = synthetic_registry()
    document = synthetic_document(tmp_path / "run")
    del document[key]
    assert refused(document, registry)
    assert not checked(registry).is_valid(document)


@pytest.mark.parametrize("key", sorted(STAGES))
def test_a_stage_needs_its_name_where_no_preset_gives_one(key, tmp_path):
    registry = synthetic_registry()
    document = {**synthetic_document(tmp_path / "run"), key: {}}
    assert refused(document, registry)
    assert not checked(registry).is_valid(document)


def test_core_alone_has_a_schema_which_nothing_fits():
    registry = Registry.from_plugins([("chameleon-tuner-core", hooks)])
    schema = pipeline_schema(registry)
    assert list(schema["properties"]) == list(KEYS)
    assert not checked(registry).is_valid({"model": {"operators": []}, "target": "native"})
