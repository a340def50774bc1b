"""The section ``precision``: its forms, its mistakes, and what of it binds a run folder."""

import pytest
from chameleon_core._pipeline.binding import difference
from chameleon_core._pipeline.load import from_dict
from chameleon_core._pipeline.yaml import dump_yaml
from chameleon_core.plugin_api import FrontendRecord, SectionRecord
from chameleon_networks._precision.section import Precision
from synthetic import plugin_of

HEAD = "model: {net: {}}\ntarget: native\n"


@pytest.fixture
def using(fakes):
    """A registry with a frontend that knows two types beside float32."""
    net = fakes.record("net", kind=FrontendRecord, precisions=("bfloat16", "int8"))
    section = SectionRecord(name="precision", summary="", options=Precision)
    return fakes.registry(("networks", plugin_of(frontends=[net], sections=[section])))


@pytest.mark.parametrize("text", ["", "precision: float32\n", "precision: {type: float32}\n"])
def test_float32_is_the_default_and_changes_nothing_that_is_written(load, using, text):
    plain, same = load(HEAD, using=using), load(HEAD + text, using=using)
    assert "precision" not in same.sections
    assert "precision" not in same.document
    assert same.digest == plain.digest
    assert difference(plain.document, same) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("int8", Precision(type="int8")),
        ("{type: int8, max_error: 0.1}", Precision(type="int8", max_error=0.1)),
        (
            "{search: [bfloat16, int8], max_error: 1e-2}",
            Precision(search=("bfloat16", "int8"), max_error=0.01),
        ),
        (
            "{search: [int8], metric: my.eval:accuracy, max_drop: 0.005}",
            Precision(search=("int8",), metric="my.eval:accuracy", max_drop=0.005),
        ),
    ],
)
def test_each_form_is_read_and_written_such_that_it_is_read_again(load, using, text, expected):
    resolved = load(HEAD + f"precision: {text}\n", using=using)
    assert resolved.sections["precision"] == expected
    again = load(dump_yaml(dict(resolved.document)), f"output={resolved.output}", using=using)
    assert (again.sections, again.digest) == (resolved.sections, resolved.digest)
    assert from_dict(resolved.document, registry=using).document == resolved.document
    assert Precision.from_json(resolved.document["precision"]) == expected


def test_an_override_opens_the_short_form(load, using):
    assert load(HEAD, "precision=int8", using=using).sections["precision"] == Precision(type="int8")
    resolved = load(HEAD + "precision: int8\n", "precision.max_error=0.5", using=using)
    assert resolved.sections["precision"] == Precision(type="int8", max_error=0.5)


def test_files_are_relative_to_the_pipeline_and_have_to_be_there(load, faults, using, tmp_path):
    text = HEAD + "precision: {type: int8, calibrate: data.py:batches}\n"
    (line,) = faults(text, using=using)
    assert line == (
        "pipeline.yaml:3:36: option 'calibrate' for 'precision': there is no file "
        f"{tmp_path}/data.py"
    )
    (tmp_path / "data.py").touch()
    assert load(text, using=using).sections["precision"].calibrate == f"{tmp_path}/data.py:batches"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("int9", "3:12: unknown precision 'int9' for frontend 'net'; did you mean 'int8'?"),
        (
            "{search: [int8, half], max_error: 0.1}",
            "3:28: unknown precision 'half' for frontend 'net'; there is float32, bfloat16 or int8",
        ),
        ("{tpye: int8}", "3:13: unknown option 'tpye' for 'precision'; did you mean 'type'?"),
        ("{search: [int8]}", "'search' needs a bound; name 'max_error', or 'metric' and"),
        ("{type: int8, search: [int8], max_error: 1}", "'type' and 'search' exclude each other"),
        ("{search: [int8, int8], max_error: 1}", "a type is in 'search' twice"),
        ("{type: int8, max_drop: 0.1}", "'metric' and 'max_drop' belong together"),
        ("{max_error: 0.1}", "names no type; add 'type' or 'search'"),
        ("{type: int8, max_error: 0}", "3:36: option 'max_error' for 'precision' must be > 0.0: 0"),
        ("3", "must be a text"),
    ],
)
def test_mistakes_are_told_where_they_are(faults, using, text, expected):
    (line,) = faults(HEAD + f"precision: {text}\n", using=using)
    assert line.startswith("pipeline.yaml:3:")
    assert expected in line


def test_a_frontend_that_registered_no_precision_refuses_all_but_float32(load, faults, using):
    text = "model: {onnx: a}\ntarget: native\n"
    (line,) = faults(text + "precision: int8\n", using=using)
    assert line == (
        "pipeline.yaml:3:12: frontend 'onnx' computes in float32 alone; leave 'precision' out, or "
        "choose a frontend of networks"
    )
    load(text + "precision: float32\n", using=using)
    assert FrontendRecord(name="x", summary="", factory="a:b", options=object).precisions == ()


@pytest.mark.parametrize(
    ("old", "new", "binds"),
    [
        ("int8", "{type: int8, max_error: 0.1}", False),
        ("int8", "{search: [int8], max_error: 0.1}", False),
        ("{type: int8, max_error: 0.1}", "{type: int8, metric: a:b, max_drop: 1}", False),
        ("int8", "bfloat16", True),
        ("int8", "float32", True),
        ("int8", "{type: int8, calibrate: my.data:batches}", True),
    ],
)
def test_a_folder_is_bound_by_types_and_ranges_and_not_by_the_bound(load, using, old, new, binds):
    before = load(HEAD + f"precision: {old}\n", using=using)
    after = load(HEAD + f"precision: {new}\n", using=using)
    assert (difference(before.document, after) is not None) == binds
    assert before.digest != after.digest
