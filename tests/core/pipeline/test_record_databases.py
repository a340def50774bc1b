"""The key ``records``: words, places, mappings and lists of them, and who is meant by a place."""

from pathlib import Path

import attrs
import pytest
from chameleon_core._pipeline.load import from_dict, load_pipeline
from chameleon_core._pipeline.nodes import PipelineError
from chameleon_core._pipeline.yaml import dump_yaml
from chameleon_core.plugin_api import RecordDatabaseRecord
from synthetic import plugin_of, record_of, synthetic_document, synthetic_registry


@attrs.frozen(kw_only=True)
class ShelfOptions:
    """Where the shelf is; the user's own where nobody says."""

    at: str | None = attrs.field(default=None, metadata={"path": True})


def shelves(*placed):
    """A plugin of databases: some are named by a place, and one is not."""
    return plugin_of(
        record_databases=[
            record_of(
                ShelfOptions,
                ShelfOptions,
                name=name,
                kind=RecordDatabaseRecord,
                place_option="at" * (name in placed),
            )
            for name in (*placed, "nowhere")
        ]
    )


@pytest.fixture
def resolved(tmp_path):
    def make(*, placed=("shelf",), **more):
        document = synthetic_document(tmp_path / "run", **more)
        registry = synthetic_registry(shelves(*placed))
        return from_dict(document, registry=registry, folder=tmp_path)

    return make


@pytest.fixture
def unasked(tmp_path):
    """A pipeline file as the command line loads it, which shares without being asked."""

    def make(*, placed=("shelf",), **more):
        file = tmp_path / "pipeline.yaml"
        file.write_text(dump_yaml(synthetic_document(tmp_path / "run", **more)))
        return load_pipeline(file, registry=synthetic_registry(shelves(*placed)), sharing=True)

    return make


@pytest.fixture
def environment(monkeypatch):
    return lambda text: monkeypatch.setenv("CHAMELEON_RECORDS", text)


def places(pipeline):
    return [spec.options.at for spec in pipeline.records]


def test_places_are_relative_to_where_they_are_written_and_urls_are_not(resolved, tmp_path):
    result = resolved(
        records=["here", "../up", "~/own", "/share", "https://host/a", {"name": "nowhere"}]
    )
    wanted = [
        str(tmp_path / "here"),
        str(tmp_path.parent / "up"),
        str(Path.home() / "own"),
        "/share",
        "https://host/a",
        None,
    ]
    assert places(result) == wanted
    assert [spec.name for spec in result.records] == [*["shelf"] * 5, "nowhere"]
    registry = synthetic_registry(shelves("shelf"))
    assert places(from_dict(result.document, registry=registry)) == wanted


def test_one_entry_is_written_alone(resolved, tmp_path):
    written = {"name": "shelf", "at": str(tmp_path / "here")}
    for arguments in ("here", ["here"], {"name": "shelf", "at": "here"}):
        assert resolved(records=arguments).document["records"] == written
    assert resolved(records=["here", "here"]).document["records"] == [written, written]


def test_words_stay_words(resolved, environment):
    environment("elsewhere")
    for word, count in (("none", 0), ("default", 1)):
        result = resolved(records=word)
        assert len(result.records) == count
        assert result.document["records"] == word
    assert resolved().records is None
    assert "records" not in resolved().document


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", [None]),
        ("default", [None]),
        ("none", []),
        ("/there", ["/there"]),
        ("https://host/a", ["https://host/a"]),
    ],
)
def test_the_environment_says_what_default_is(resolved, unasked, environment, text, wanted):
    environment(text)
    assert places(resolved(records="default")) == wanted
    assert places(unasked()) == wanted
    assert "records" not in unasked().document


def test_a_place_in_the_environment_is_relative_to_the_working_folder(
    resolved, environment, tmp_path, monkeypatch
):
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    environment("there")
    assert places(resolved(records="default")) == [str(tmp_path / "work" / "there")]


def test_nothing_is_shared_unasked_where_it_is_not_clear_with_whom(unasked, environment):
    environment("")
    assert unasked(records="none").records == ()
    assert unasked(placed=()).records is None
    assert unasked(placed=("shelf", "board")).records is None


@pytest.mark.parametrize(("placed", "told"), [((), "none"), (("shelf", "board"), "board, shelf")])
def test_a_place_alone_means_one_kind(resolved, placed, told):
    with pytest.raises(PipelineError, match=f"and {told} of the installed ones take places"):
        resolved(placed=placed, records="here")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["none", "here"], "'none' stands alone"),
        ({"name": "shelv"}, "unknown record database 'shelv'; did you mean 'shelf'"),
        ({"name": "shelf", "att": "x"}, "unknown option 'att'"),
        ({"name": "shelf", "at": 3}, "'at'.*must be"),
        (3, "must name a record database"),
    ],
)
def test_mistakes_are_named(resolved, given, said):
    with pytest.raises(PipelineError, match=said):
        resolved(records=given)
