"""The local hook for commits refuses subjects that break CONTRIBUTING.md's rule."""

import subprocess

import pytest


@pytest.fixture
def refusal(root, tmp_path):
    """Returns what the hook says of a message; nothing if it takes it."""

    def ask(message):
        file = tmp_path / "message"
        file.write_text(message)
        hook = root / "tools" / "hooks" / "commit-msg"
        asked = subprocess.run([hook, file], check=False, capture_output=True, text=True)
        assert (asked.returncode == 0) == (not asked.stderr)
        return asked.stderr

    return ask


@pytest.mark.parametrize(
    "message",
    [
        "Check the rule of language in documents\n",
        f"Check {'x' * 66}\n\nA body says why.\n# A comment of git's.\n",
        "Check it\n# A comment of git's.\n",
        "Merge branch 'a-branch-with-a-name-that-is-longer-than-the-limit' into another-branch\n",
    ],
)
def test_a_message_in_form_is_taken(refusal, message):
    assert not refusal(message)


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (f"Check {'x' * 67}\n", "has 73 characters"),
        ("check it\n", "upper case"),
        ("Check it.\n", "without a period"),
        ("Check it\nand that\n", "below the subject"),
    ],
)
def test_a_message_out_of_form_is_refused_with_the_reason(refusal, message, words):
    assert words in refusal(message)
