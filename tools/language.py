"""Checks the rule of language (CONTRIBUTING.md) in documents, docstrings, comments and log events.

``python tools/language.py [FILE ...]`` prints each sentence that breaks a rule, with its file and
line, and the mean length of sentences. Without files it reads every document of the repository;
``--docstrings`` reads the code of the packages.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LONGEST = 25
"""Words of the longest sentence that passes."""

HOME_MADE = {
    r"told of": "name what is said, and to whom",
    r"\bmend(s|ed|ing)?\b": "fix",
    r"\bhalf a sentence\b": "reason",
    r"\bin types\b": "quantized, or in a reduced dtype",
    r"\belement types?\b": "dtype",
    r"\bof one's own\b": "your own",
    r"\bone's\b": "your",
    r"\bthe matter\b": "name it",
    r"\b(by and by|hopelessly|nobody's|nobody promises)\b": "say it plainly",
    r"\bin the box\b": "included",
    r"\bas it comes\b": "with its default settings",
}
"""Patterns of home-made terms, and the word of the field or the advice instead."""

_FENCE = re.compile(r"^\s*(```|~~~)")
_ITEM = re.compile(r"^\s*([-*+]|\d+\.)\s+")
_HEADING = re.compile(r"^#+\s+")
_END = re.compile(r"(?<=[.!?])[\"')*_]*\s+(?=[\"'(*_`\[]*[A-Z0-9`])")
_ABBREVIATION = re.compile(r"\b(e\.g|i\.e|vs|cf|al|Fig|No|approx|etc)\.$")
_WORD = re.compile(r"[A-Za-z0-9][\w'.,/:=%+-]*")
_BAD_START = re.compile(r"^[\"'(*_\[]*(What|Who|Where|Of)\b")


@dataclass(frozen=True, kw_only=True)
class Sentence:
    """A sentence of a document.

    Attributes:
        file: relative to the repository.
        line: at which its paragraph begins.
        text: without markup of code and links.
    """

    file: str
    line: int
    text: str

    @property
    def words(self) -> int:
        """How many words it has."""
        return len(_WORD.findall(self.text))

    def faults(self) -> Iterator[str]:
        """The rules that it breaks."""
        if _BAD_START.match(self.text):
            yield "begins with What, Who, Where or Of"
        if self.words > LONGEST:
            yield f"has {self.words} words (at most {LONGEST})"
        for pattern, advice in HOME_MADE.items():
            if match := re.search(pattern, self.text, re.IGNORECASE):
                yield f"says {match.group()!r} ({advice})"


def sentences_of_document(file: str, text: str) -> Iterator[Sentence]:
    """The sentences of a Markdown file: its code is left out, a heading is one sentence."""
    fenced = False
    paragraph: list[str] = []
    start = 0
    for number, line in enumerate([*text.splitlines(), ""], start=1):
        if _FENCE.match(line):
            fenced = not fenced
        ends = fenced or not line.strip() or line.lstrip().startswith(("|", "<", "```", "~~~"))
        alone = bool(_HEADING.match(line))
        if (ends or alone or _ITEM.match(line)) and paragraph:
            yield from _split(file, start, " ".join(paragraph))
            paragraph = []
        if alone:
            yield from _split(file, number, _HEADING.sub("", line))
        elif not fenced and line.lstrip().startswith("|"):
            cells = line.strip().strip("|").split("|")
            yield from (s for cell in cells[1:] for s in _split(file, number, cell.strip()))
        elif not ends:
            start = start if paragraph else number
            paragraph.append(_ITEM.sub("", line).strip().removeprefix("> "))


def sentences_of_code(file: str, text: str) -> Iterator[Sentence]:
    """The sentences of a module's docstrings and comments, and its log events."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            yield from _of_docstring(file, getattr(node, "lineno", 1), ast.get_docstring(node))
        elif isinstance(node, ast.Call) and (event := _event(node)):
            yield Sentence(file=file, line=node.lineno, text=event)
    for line, comment in _comments(text):
        yield from _split(file, line, comment)


def _of_docstring(file: str, line: int, documented: str | None) -> Iterator[Sentence]:
    text = re.sub(r"^\s*(>>>|\.\.\. ).*$", "", documented or "", flags=re.MULTILINE)
    for block in re.split(r"\n\s*\n|\n\s*(?=\w+: |[-*] )", text):
        body = re.sub(r"^\s*(Args|Returns|Raises|Attributes|Yields):\s*", "", block)
        body = re.sub(r"^\w+:\s+", "", body.strip())
        yield from _split(file, line, " ".join(body.split()))


def _event(call: ast.Call) -> str:
    """The event of a call such as ``log.info("worker_restarted")``, in words."""
    logs = isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name)
    named = logs and call.func.value.id == "log" and call.args  # type: ignore[attr-defined]
    first = call.args[0] if named else None
    return str(first.value).replace("_", " ") if isinstance(first, ast.Constant) else ""


def _comments(text: str) -> Iterator[tuple[int, str]]:
    """Comments with their lines; one that goes on in the next line is a single one."""
    pending: list[str] = []
    start = last = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type != tokenize.COMMENT:
            continue
        line, alone = token.start[0], not token.line[: token.start[1]].strip()
        if pending and (line != last + 1 or not alone):
            yield start, " ".join(pending)
            pending = []
        body = re.sub(r"^#+\s*((noqa|type)\b[^-#]*-?)?\s*", "", token.string)
        start, last = (start if pending else line), line
        pending.append(body)
    yield start, " ".join(pending)


def _split(file: str, line: int, paragraph: str) -> Iterator[Sentence]:
    """Sentences of a paragraph: code becomes one word, a link its text."""
    plain = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", paragraph)
    plain = re.sub(r"``?[^`]*``?", "Code", plain)
    pending = ""
    for part in _END.split(plain):
        pending = f"{pending} {part}".strip()
        if not _ABBREVIATION.search(pending):
            if _WORD.search(pending):
                yield Sentence(file=file, line=line, text=pending)
            pending = ""
    if _WORD.search(pending):
        yield Sentence(file=file, line=line, text=pending)


def read(files: Iterable[Path]) -> list[Sentence]:
    """The sentences of documents (``.md``) and modules (``.py``)."""
    sentences: list[Sentence] = []
    for path in files:
        name = str(path.resolve().relative_to(ROOT))
        split = sentences_of_code if path.suffix == ".py" else sentences_of_document
        sentences.extend(split(name, path.read_text()))
    return sentences


def tracked(*patterns: str) -> list[Path]:
    """Files of the repository that match patterns of git."""
    listing = subprocess.run(
        ["git", "ls-files", *patterns],  # noqa: S607 - of whoever runs this
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    names = listing.stdout.splitlines()
    # The journal stays as it was written.
    return [ROOT / name for name in names if "vendored" not in name and "JOURNAL" not in name]


def main() -> int:
    """Print faults; 1 if there is one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--docstrings", action="store_true")
    asked = parser.parse_args()
    sources = ("packages/*/src/*.py",) if asked.docstrings else ("*.md",)
    sentences = read(asked.files or tracked(*sources))
    faults = [(sentence, fault) for sentence in sentences for fault in sentence.faults()]
    for sentence, fault in faults:
        print(f"{sentence.file}:{sentence.line}: {fault}: {sentence.text}")
    mean = sum(row.words for row in sentences) / max(len(sentences), 1)
    print(f"{len(sentences)} sentences, {mean:.1f} words on average, {len(faults)} faults")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
