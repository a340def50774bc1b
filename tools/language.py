"""Checks the rule of language (CONTRIBUTING.md) in documents, docstrings, comments and log events.

``python tools/language.py [FILE ...]`` prints each sentence that breaks a rule, with its file and
line, and the mean length of sentences. Without files it reads every document of the repository;
``--docstrings`` reads the code of the packages.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import re
import subprocess
import sys
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
_TOKEN = re.compile(
    r"#[^\n]*"
    r"|(\"{3}|'{3})(?:\\.|(?!\1).)*\1"
    r'|"(?:\\.|[^"\\\n])*"'
    r"|'(?:\\.|[^'\\\n])*'",
    re.DOTALL,
)
"""A comment or a string of Python."""
_PRAGMA = re.compile(r"^#+\s*((noqa|type|fmt|isort)\b.*?( - |$))?\s*")
_WORD = re.compile(r"[A-Za-z0-9][\w'.,/:=%+-]*")
_IDENTIFIER = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
_BAD_START = re.compile(r"^[\"'(*_\[]*(What|Who|Where|Of)\b")


@dataclass(frozen=True, kw_only=True)
class Sentence:
    """A sentence of a document.

    Attributes:
        file: relative to the repository.
        line: at which its paragraph begins.
        text: without markup of code and links.
        is_event: whether it is the event of a log call instead.
    """

    file: str
    line: int
    text: str
    is_event: bool = False

    @property
    def words(self) -> int:
        """How many words it has."""
        return len(_WORD.findall(self.text))

    def faults(self) -> Iterator[str]:
        """The rules that it breaks."""
        if self.is_event and not _IDENTIFIER.fullmatch(self.text):
            yield "is a log event, but no identifier in snake_case"
        if _BAD_START.match(self.text):
            yield "begins with What, Who, Where or Of"
        if self.words > LONGEST:
            yield f"has {self.words} words (at most {LONGEST})"
        for pattern, advice in HOME_MADE.items():
            if match := re.search(pattern, self.text.replace("_", " "), re.IGNORECASE):
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
    """The sentences of a module's docstrings and comments, and its log events with their fields."""
    for value in _statement_values(ast.parse(text).body):
        yield from _of_docstring(file, value.lineno, inspect.cleandoc(_constant(value)))
        if isinstance(value, ast.Call) and value.args and _is_log_call(value.func):
            # The event may be in a variable, whose content is not known here.
            if not isinstance(value.args[0], ast.Name):
                event = _constant(value.args[0])
                yield Sentence(file=file, line=value.lineno, text=event, is_event=True)
            for field in value.keywords:
                yield from _split(file, field.value.lineno, _constant(field.value))
    for line, comment in _comments(text):
        yield from _split(file, line, comment)


def _of_docstring(file: str, line: int, documented: str) -> Iterator[Sentence]:
    text = re.sub(r"^\s*(>>>|\.\.\. ).*$", "", documented, flags=re.MULTILINE)
    for block in re.split(r"\n\s*\n|\n\s*(?=\w+: |[-*] )", text):
        body = re.sub(r"^\s*(Args|Returns|Raises|Attributes|Yields):\s*", "", block)
        body = re.sub(r"^\w+:\s+", "", body.strip())
        yield from _split(file, line, " ".join(body.split()))


def _statement_values(body: Iterable[ast.AST]) -> Iterator[ast.expr]:
    """The expressions that are statements of their own, such as docstrings and calls."""
    for node in body:
        if isinstance(node, ast.Expr):
            yield node.value
        for inner in ("body", "handlers", "orelse", "finalbody", "cases"):
            yield from _statement_values(getattr(node, inner, ()))


def _is_log_call(function: ast.expr) -> bool:
    """Whether a called function is a method of a module's logger, or ``fall_back``."""
    if isinstance(function, ast.Attribute):
        logger = function.value
        return isinstance(logger, ast.Name) and logger.id.lstrip("_") == "log"
    return isinstance(function, ast.Name) and function.id == "fall_back"


def _constant(value: ast.expr) -> str:
    """The text of a string constant or f-string, whose expressions become words; else empty."""
    if isinstance(value, ast.JoinedStr):
        return "".join(_constant(part) or "Code" for part in value.values)
    text = value.value if isinstance(value, ast.Constant) else ""
    return text if isinstance(text, str) else ""


def _comments(text: str) -> Iterator[tuple[int, str]]:
    """Comments with their lines; one that goes on in the next line is a single one."""
    pending: list[str] = []
    start = line = last = 1
    end, goes_on = 0, False
    for token in _TOKEN.finditer(text):
        line, end = line + text.count("\n", end, token.start()), token.start()
        if not token[0].startswith("#"):
            continue
        alone = not text[text.rfind("\n", 0, end) + 1 : end].strip()
        if pending and not (goes_on and alone and line == last + 1):
            yield start, " ".join(pending)
            pending = []
        start, last, goes_on = (start if pending else line), line, alone
        pending.append(_PRAGMA.sub("", token[0]))
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
