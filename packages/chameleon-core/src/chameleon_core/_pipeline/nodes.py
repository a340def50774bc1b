"""A pipeline as a tree of values, each with the file, line and column where it is written."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import attrs

from chameleon_core._errors import ConfigError, ExitCode


def expanded(text: str | Path, mark: Mark | None = None) -> Path:
    """The path with a home folder in place of ``~`` or ``~user`` at its beginning.

    Args:
        text: the path as the user wrote it.
        mark: the place of the path in a pipeline, if it has one.

    Raises:
        ConfigError: the user has no home folder.
    """
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        problem = f"there is no home folder {Path(text).parts[0]}; write the path in full"
        raise (
            ConfigError(f"{text}: {problem}") if mark is None else PipelineError.at(mark, problem)
        ) from error


def _join(text: str, mark: Mark) -> str:
    if re.match(r"[a-z]+://", text):
        return text  # a URL is no path
    return os.path.normpath((mark.folder or Path.cwd()) / expanded(text, mark))


def missing_sources(node: Node) -> list[tuple[Node, str]]:
    """Find source files that a pipeline names but that do not exist.

    Each comes with the node that names it, for an error message.

    Args:
        node: a string such as ``nets.py:build``, or a list or mapping of such strings.
    """
    if isinstance(node.value, str):
        file, _, _ = _parts(node.value)
        absent = _is_file_name(file) and not Path(file).is_file()
        return [(node, file)] if absent else []
    inner: Iterable[Node] = ()
    if node.is_sequence:
        inner = node.value
    elif node.is_mapping:
        inner = (item.node for _, item in node.items())
    return [missing for node in inner for missing in missing_sources(node)]


def _source(text: str, mark: Mark) -> str:
    file, colon, attribute = _parts(text)
    # A saved program is named without a function, so the name could also be a module's.
    is_file = _is_file_name(file) or (not colon and Path(_join(file, mark)).is_file())
    return _join(file, mark) + colon + attribute if is_file else text


def _parts(text: str) -> tuple[str, str, str]:
    file, colon, attribute = text.rpartition(":")
    return (file, colon, attribute) if colon else (text, "", "")


def _is_file_name(text: str) -> bool:
    return text.endswith(".py") or "/" in text or os.sep in text


@attrs.frozen(kw_only=True)
class Mark:
    """A line and column of a document.

    Attributes:
        source: the file as the user named it, or another origin such as ``--set seed=x``.
        line: the line number, from 1; 0 if the source is no file.
        column: the column number, from 1; 0 if the source is no file.
        folder: the folder to which relative paths in the document are relative. None means the
            working folder.
        author: the distribution whose preset or default the value comes from; None if the user
            wrote it.
    """

    source: str
    line: int = 0
    column: int = 0
    folder: Path | None = None
    author: str | None = None

    def __str__(self) -> str:
        return f"{self.source}:{self.line}:{self.column}" if self.line else self.source


class PipelineError(ConfigError):
    """Raised with all faults of a pipeline: one line for each, in the order of the file.

    Attributes:
        problems: the faults as data.
    """

    @attrs.frozen(kw_only=True)
    class Problem:
        """A fault of a pipeline, and its place.

        Attributes:
            mark: the place of the fault.
            message: the fault and the next step for the user.
            plugin: whether a plugin caused the fault, and not the user.
        """

        mark: Mark
        message: str
        plugin: bool = False

        def __str__(self) -> str:
            return f"{self.mark}: {self.message}"

    def __init__(self, problems: list[PipelineError.Problem], *, hint: str | None = None) -> None:
        self.problems = tuple(
            sorted(set(problems), key=lambda said: (said.mark.line, said.mark.column, str(said)))
        )
        super().__init__("\n".join(map(str, self.problems)), hint=hint)
        if self.problems and all(problem.plugin for problem in self.problems):
            self.exit_code = ExitCode.PLUGIN

    @classmethod
    def at(cls, mark: Mark, message: str, *, plugin: bool = False) -> PipelineError:
        """An error with one problem.

        Args:
            mark: the place of the problem.
            message: the description of the problem.
            plugin: whether a plugin, rather than the pipeline, is wrong.
        """
        return cls([PipelineError.Problem(mark=mark, message=message, plugin=plugin)])


class Collecting:
    """A ``with`` block that catches a ``PipelineError`` and keeps its faults.

    So code after the block runs, and can find more faults.

    Args:
        problems: the list to which the error's faults are added.
        hints: the list to which the error's hint is added, empty if it has none.
    """

    def __init__(
        self, problems: list[PipelineError.Problem], hints: list[str] | None = None
    ) -> None:
        self._problems = problems
        self._hints = [] if hints is None else hints

    def __enter__(self) -> None:
        """Enter the context, for which nothing is set up."""

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> bool:
        if isinstance(error, PipelineError):
            self._problems.extend(error.problems)
            self._hints.append(error.hint or "")
            return True
        return False


@attrs.frozen(kw_only=True, eq=False)
class Node:
    """A value with its place: a scalar, a list of nodes, or a mapping from key to item.

    Attributes:
        value: None, a bool, an int, a float, a string, a tuple of nodes or a dict of items.
        mark: the place at which the value starts.
    """

    value: Any
    mark: Mark

    @classmethod
    def of(
        cls,
        value: Any,
        source: str,
        *,
        folder: Path | None = None,
        author: str | None = None,
        mark: Mark | None = None,
    ) -> Node:
        """Turn Python values into nodes.

        Args:
            value: JSON values. Tuples count as lists, and NumPy's numbers as Python's. A node in
                them stays as it is.
            source: the origin of the values for error messages, such as ``preset 'paper'``.
            folder: the folder to which relative paths are relative.
            author: the distribution that wrote the values (``Mark.author``).
            mark: the place of all values; if None, ``source`` and the keys above a value are its
                place.

        Raises:
            PipelineError: a key is no string, or a value is not possible in YAML.
        """

        def node(value: Any, path: str) -> Node:
            if isinstance(value, Node):
                return value
            words = f"{source}, {path}" if path else source
            at = mark or Mark(source=words, folder=folder, author=author)
            if isinstance(value, Mapping):
                items = {}
                for key, inner in value.items():
                    if not isinstance(key, str):
                        raise PipelineError.at(at, f"key {key!r} is no text")
                    below = node(inner, f"{path}.{key}" if path else key)
                    items[key] = Item(key_mark=below.mark, node=below)
                return cls(value=items, mark=at)
            if isinstance(value, list | tuple):
                nodes = (node(inner, f"{path}[{index}]") for index, inner in enumerate(value))
                return cls(value=tuple(nodes), mark=at)
            if isinstance(value, Path):
                return cls(value=str(value), mark=at)
            if value is None or isinstance(value, bool | int | float | str):
                return cls(value=value, mark=at)
            if isinstance(value, Real):  # NumPy's integers are not instances of int
                number = int(value) if isinstance(value, Integral) else float(value)
                return cls(value=number, mark=at)
            raise PipelineError.at(at, f"{value!r} is no value that a pipeline can hold")

        return node(value, "")

    def with_value(self, value: Any) -> Node:
        """Another value at the same place: JSON values, in which there may be nodes."""
        return Node.of(value, self.mark.source, mark=self.mark)

    def only(self, keys: Collection[str]) -> Node:
        """The mapping with no other keys than these."""
        return attrs.evolve(self, value={key: item for key, item in self.items() if key in keys})

    def without(self, *keys: str) -> Node:
        """The mapping without some keys."""
        return self.only([key for key, _ in self.items() if key not in keys])

    def absolute(self, *, source: bool = False) -> Node:
        """A copy in which every relative path is absolute.

        The node must be a string, or a list or mapping of strings.

        Args:
            source: whether the strings name Python objects, as ``file.py:function`` or
                ``module:function``. Only names of files are then replaced.
        """
        value = self.value
        if isinstance(value, str):
            value = (_source if source else _join)(value, self.mark)
        elif self.is_sequence:
            value = tuple(node.absolute(source=source) for node in value)
        elif self.is_mapping:
            value = {
                key: attrs.evolve(item, node=item.node.absolute(source=source))
                for key, item in self.items()
            }
        return Node(value=value, mark=self.mark)

    @property
    def is_mapping(self) -> bool:
        """Whether the value is a mapping."""
        return isinstance(self.value, dict)

    @property
    def is_sequence(self) -> bool:
        """Whether the value is a list."""
        return isinstance(self.value, tuple)

    def items(self) -> Iterator[tuple[str, Item]]:
        """Keys and items of a mapping; nothing for any other value."""
        yield from self.value.items() if self.is_mapping else ()

    def get(self, key: str) -> Node | None:
        """The value of a key, or None if the key is missing or the node is no mapping.

        Args:
            key: the key.
        """
        item = self.value.get(key) if self.is_mapping else None
        return None if item is None else item.node

    def plain(self) -> Any:
        """The value as JSON values."""
        if self.is_mapping:
            return {key: item.node.plain() for key, item in self.items()}
        if self.is_sequence:
            return [node.plain() for node in self.value]
        return self.value

    def in_words(self) -> str:
        """A phrase that describes the value in an error message, such as ``the text '64'``."""
        value = self.value
        if self.is_mapping:
            return "a mapping"
        if self.is_sequence:
            return "a list"
        if value is None:
            return "null"
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, str):
            return f"the text {value!r}"
        return f"the number {value!r}"


@attrs.frozen(kw_only=True, eq=False)
class Item:
    """A value of a mapping, and the place of its key."""

    key_mark: Mark
    node: Node


def expand_shorthand(node: Node, kind: type) -> Node:
    """The section as a mapping, also if the user wrote only one value, as in ``model: net.onnx``.

    Such a value belongs to the first required option of the options class, or to the first option
    if none is required.

    Args:
        node: the section as the user wrote it.
        kind: the options class of the section.
    """
    if node.is_mapping:
        return node
    if node.value is None:
        return node.with_value({})
    fields = [field for field in attrs.fields(kind) if field.init]
    required = [field for field in fields if field.default is attrs.NOTHING]
    names = [field.alias for field in required or fields]
    return node.with_value({names[0]: node}) if names else node
