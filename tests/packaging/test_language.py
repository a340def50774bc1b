"""Documents and code keep the rule of language, and its check notices faults."""

import importlib
import inspect

import pytest


@pytest.fixture(scope="module")
def language(root):
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(root / "tools")
        yield importlib.import_module("language")


@pytest.mark.parametrize(("files", "least"), [("*.md", 1000), ("packages/*/src/*.py", 10000)])
def test_no_document_docstring_comment_and_log_event_breaks_the_rule(language, files, least):
    sentences = language.read(language.tracked(files))
    faults = [f"{row.file}:{row.line}: {fault}" for row in sentences for fault in row.faults()]
    assert len(sentences) > least
    assert not faults


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("What it prints is short.", "begins with What"),
        ("Short. Where it fails, it says so.", "begins with What"),
        (" ".join(["word"] * 26) + ".", "has 26 words"),
        ("A change mends it.", "says 'mends'"),
        ("# What one gets", "begins with What"),
        ("| option | Of a task it is the name |", "begins with What"),
    ],
)
def test_a_fault_is_found(language, text, fault):
    sentences = list(language.sentences_of_document("page.md", text))
    assert any(fault in result for row in sentences for result in row.faults())


def test_code_and_short_sentences_pass(language):
    text = "Run `what --where`.\n\n```sh\nWhat is here is code\n```\n"
    (sentence,) = language.sentences_of_document("page.md", text)
    assert not list(sentence.faults())


def test_docstrings_are_split_by_argument(language):
    function = 'def f(a):\n    """Gives b.\n\n    Args:\n        a: what it is.\n    """\n'
    code = f'"""Reads. Fast."""\n{function}'
    texts = [row.text for row in language.sentences_of_code("m.py", code)]
    assert texts == ["Reads.", "Fast.", "Gives b.", "what it is."]


@pytest.mark.parametrize(
    ("code", "fault"),
    [
        ('LIMIT = 3\n"""What nobody may pass."""\n', "begins with What"),
        ("# What follows is short.\n", "begins with What"),
        ("x = 1  # type: ignore[attr-defined]  # noqa: S101 - Of the caller\n", "begins with What"),
        ('log.warning("a worker ended")\n', "is a log event, but no identifier"),
        ('_log.info(f"{name}_ended")\n', "is a log event, but no identifier"),
        ('fall_back("it failed", error)\n', "is a log event, but no identifier"),
        ('log.info("half_mended")\n', "says 'mended'"),
        ('log.info("worker_ended", reason="What it ran has crashed.")\n', "begins with What"),
        ('log.info("worker_ended", reason=f"{name} mends it")\n', "says 'mends'"),
    ],
)
def test_a_fault_of_code_is_found(language, code, fault):
    (result,) = [
        fault for row in language.sentences_of_code("m.py", code) for fault in row.faults()
    ]
    assert fault in result


def test_identifiers_strings_and_pragmas_pass(language):
    code = """
    log.info("worker_ended", worker=name, reason="it is idle")
    math.log("it is no logger")
    text = "# What is in a string is no comment"
    import torch  # noqa: PLC0415 - slow  # type: ignore[attr-defined]
    """
    sentences = list(language.sentences_of_code("m.py", inspect.cleandoc(code)))
    assert not [fault for row in sentences for fault in row.faults()]
    assert "slow" in [row.text for row in sentences][-1]


def test_a_comment_goes_on_in_the_next_line_unless_it_is_beside_code(language):
    code = "# One\n# comment.\nx = 1  # beside\n# Below.\ny = 2  # fmt: skip\n"
    assert [row.text for row in language.sentences_of_code("m.py", code)] == [
        "One comment.",
        "beside",
        "Below.",
    ]
