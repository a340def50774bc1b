"""Reads YAML 1.2 into nodes with line and column, and writes pipelines as YAML."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedSeq
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, ScalarNode, SequenceNode
from ruamel.yaml.representer import RoundTripRepresenter
from ruamel.yaml.scalarstring import DoubleQuotedScalarString

from chameleon_core._errors import ConfigError
from chameleon_core._pipeline.nodes import Item, Mark, Node, PipelineError

_TAG = "tag:yaml.org,2002:"
_MOST = 100_000
"""Largest number of values in a document. Aliases of aliases can stand for far more."""

_DEEPEST = 100
"""Most levels of lists and mappings in a document, aliases included."""

_PLAIN = re.compile(r"[A-Za-z0-9_./~][\w ./=+:-]*", re.ASCII)


def read_yaml(path: str | Path) -> Node:
    """Read a YAML file into nodes.

    Args:
        path: the file. Error messages name it as it is written in this argument.

    Raises:
        ConfigError: the file cannot be read.
        PipelineError: the file is no YAML, or uses features of YAML that a pipeline must not use.
            The message has one line for each fault.
    """
    name = str(path)
    hint = "name a pipeline file that you may read"
    with ConfigError.on_os_error(f"{name}: cannot be read", hint=hint):
        try:
            data = Path(path).read_bytes()
        except FileNotFoundError as error:
            raise ConfigError(
                f"{name}: there is no such file", hint="`chameleon init` writes one to start from"
            ) from error
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        column = error.start - (data.rfind(b"\n", 0, error.start) + 1) + 1
        mark = Mark(source=name, line=line, column=column)
        raise PipelineError.at(mark, "this is no UTF-8 text") from error
    return parse_yaml(text, name, folder=Path(path).resolve().parent)


def parse_yaml(text: str, source: str, *, folder: Path | None = None) -> Node:
    """Parse YAML into nodes. Faults in the text raise the same errors as in ``read_yaml``.

    Args:
        text: the YAML as a string.
        source: the name of the document in error messages.
        folder: the folder to which relative paths in the document are relative.
    """
    reader = _Reader(source, folder)
    try:
        root = YAML(typ="rt", pure=True).compose(io.StringIO(text))
    except MarkedYAMLError as error:
        raise PipelineError(_syntax_problems(error, text, reader)) from error
    except RecursionError as error:
        raise PipelineError.at(reader.mark(0, 0), "values are nested too deeply") from error
    except YAMLError as error:
        lines = str(error).splitlines() or ["this is no YAML"]
        raise PipelineError.at(reader.mark(0, 0), f"this is no YAML: {lines[0]}") from error
    if root is None:
        return Node(value=None, mark=reader.mark(0, 0))
    node = reader.node(root, ())
    if reader.problems:
        raise PipelineError(reader.problems)
    return node


def parse_value(text: str, source: str) -> Node:
    """Parse a value that the user wrote on the command line, as in ``--set key=value``.

    Args:
        text: the value as YAML.
        source: the origin of the value for error messages, such as ``--set seed=x``.
    """
    return Node.of(parse_yaml(text, source).plain(), source, mark=Mark(source=source))


def dump_yaml(document: Any, *, in_one_line: bool = False, comment: str = "") -> str:
    """Write JSON values as YAML, from which the same values can be read.

    Args:
        document: the JSON values.
        in_one_line: whether to write one line; otherwise YAML's block style is used.
        comment: the first line, as a comment; none if empty.
    """
    yaml = YAML(typ="rt", pure=True)
    yaml.default_flow_style = in_one_line
    yaml.width = 4096  # a long text stays on its line
    stream = io.StringIO()
    stream.write(f"# {comment}\n" if comment else "")
    yaml.Representer = _Representer
    yaml.dump(_styled(document), stream)
    return stream.getvalue()


class _Representer(RoundTripRepresenter):
    """Writes null as the word ``null``, because an empty value looks like a mistake."""


_Representer.add_representer(
    type(None), lambda representer, _: representer.represent_scalar(f"{_TAG}null", "null")
)


def _styled(value: Any) -> Any:
    """The value in a style for human readers.

    A list of scalars is on one line. A string is quoted unless it is a word or a path, because
    ruamel.yaml writes `?0` without quotes, which reads back as a mapping.
    """
    if isinstance(value, Mapping):
        return {_styled(key): _styled(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        entries = CommentedSeq(_styled(inner) for inner in value)
        if not any(isinstance(inner, Mapping | list | tuple) for inner in value):
            entries.fa.set_flow_style()
        return entries
    if isinstance(value, str) and not _PLAIN.fullmatch(value):
        return DoubleQuotedScalarString(value)
    return value


class _Reader:
    """Turns ruamel.yaml's nodes into ``Node``, and collects all faults."""

    def __init__(self, source: str, folder: Path | None) -> None:
        self.source = source
        self.folder = folder
        self.problems: list[PipelineError.Problem] = []
        self._nodes = 0

    def mark(self, line: int, column: int) -> Mark:
        """A mark from the counts of ruamel.yaml, which start at 0."""
        return Mark(source=self.source, line=line + 1, column=column + 1, folder=self.folder)

    def node(self, parsed: Any, above: tuple[int, ...]) -> Node:
        mark = self.mark(parsed.start_mark.line, parsed.start_mark.column)
        if id(parsed) in above:
            self._say(mark, "an alias that contains itself")
            return Node(value=None, mark=mark)
        if len(above) > _DEEPEST:
            raise PipelineError.at(mark, "values are nested too deeply")
        self._nodes += 1
        if self._nodes > _MOST:
            raise PipelineError.at(
                self.mark(0, 0), f"with its aliases, the file has over {_MOST:,} values"
            )
        inside = (*above, id(parsed))
        if isinstance(parsed, MappingNode):
            return Node(value=self._mapping(parsed, inside), mark=mark)
        if isinstance(parsed, SequenceNode):
            return Node(value=tuple(self.node(item, inside) for item in parsed.value), mark=mark)
        return Node(value=self._scalar(parsed, mark), mark=mark)

    def _mapping(self, parsed: MappingNode, inside: tuple[int, ...]) -> dict[str, Item]:
        items: dict[str, Item] = {}
        for key, value in parsed.value:
            mark = self.mark(key.start_mark.line, key.start_mark.column)
            if isinstance(key, ScalarNode) and _kind(key) == "merge":
                self._say(mark, "merge keys ('<<') are not supported; write the keys out")
                continue
            if not isinstance(key, ScalarNode):
                self._say(mark, "a key must be a text")
                continue
            name = key.value
            if name in items:
                first = items[name].key_mark
                self._say(
                    mark, f"key '{name}' is there twice, first in line {first.line}; remove one"
                )
                continue
            items[name] = Item(key_mark=mark, node=self.node(value, inside))
        return items

    def _scalar(self, parsed: Any, mark: Mark) -> Any:
        kind = _kind(parsed)
        text = parsed.value
        try:
            if kind == "null":
                return None
            if kind == "bool":
                return text.lower() == "true"
            if kind == "int":
                return _integer(text)
            if kind == "float":
                return float(text.replace("_", "").replace(".inf", "inf").replace(".Inf", "inf"))
        except ValueError:
            self._say(mark, f"{text!r} is no number")
            return None
        if kind not in {"str", "timestamp"}:
            self._say(mark, f"the tag '{parsed.tag}' has no meaning in a pipeline; remove it")
        return text

    def _say(self, mark: Mark, message: str) -> None:
        self.problems.append(PipelineError.Problem(mark=mark, message=message))


def _kind(node: Any) -> str:
    tag = str(node.tag)
    return tag.removeprefix(_TAG)


def _integer(text: str) -> int:
    digits = text.replace("_", "")
    # A leading zero is decimal in YAML 1.2, where octal is 0o17.
    return int(digits, 0) if digits.lstrip("+-")[:2].lower() in {"0x", "0o", "0b"} else int(digits)


def _syntax_problems(error: Any, text: str, reader: _Reader) -> list[PipelineError.Problem]:
    problems = []
    position = error.problem_mark or error.context_mark
    if "'\\t'" in str(error.problem):
        for number, content in enumerate(text.splitlines()):
            indentation = content[: len(content) - len(content.lstrip())]
            if "\t" in indentation and content.strip():
                problems.append(
                    PipelineError.Problem(
                        mark=reader.mark(number, indentation.index("\t")),
                        message="a tab is used for indentation; use spaces",
                    )
                )
    if not problems:
        line, column = (position.line, position.column) if position else (0, 0)
        words = ", ".join(part for part in (error.context, error.problem) if part)
        message = f"this is no YAML: {words}"
        if "'\\t'" in words:
            message = "a tab stands where YAML wants spaces"
        problems.append(PipelineError.Problem(mark=reader.mark(line, column), message=message))
    return problems
