"""Documents and code keep the rule of language, and its check notices faults."""

import importlib

import pytest
from marks import full


@pytest.fixture(scope="module")
def language(root):
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(root / "tools")
        yield importlib.import_module("language")


@pytest.mark.parametrize(("files", "least"), [("*.md", 1000), full("packages/*/src/*.py", 10000)])
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


FAULTS = """# What follows
log.warning("a worker ended")
_log.info(f"{name}_ended", worker=name)
fall_back("half_mended", error)
log.info("worker_ended", reason=f"{name} mends it")
'''What nobody may pass.'''
"""


def test_a_fault_in_each_line_of_code_is_found(language):
    rows = language.sentences_of_code("m.py", FAULTS)
    assert {row.line for row in rows if list(row.faults())} == set(range(1, 7))


def test_comments_go_on_unless_they_are_beside_code(language):
    code = "# One\n# comment.\nx = '# none'  # noqa: S1 - beside\n# Below.\ny = 2  # fmt: skip\n"
    texts = [row.text for row in language.sentences_of_code("m.py", f"{code}math.log('no event')")]
    assert texts == ["One comment.", "beside", "Below."]
