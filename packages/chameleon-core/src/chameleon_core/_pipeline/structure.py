"""Turns nodes into instances of options classes, strictly, and finds all faults in one pass.

Types are strict: ``"3"`` and ``true`` are no integers.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, get_origin

import attrs

from chameleon_core._errors import ChameleonError
from chameleon_core._pipeline.annotations import form_of, parse_duration
from chameleon_core._pipeline.jsonable import Tags, registered_classes, tags_of
from chameleon_core._pipeline.nodes import (
    Collecting,
    Mark,
    Node,
    PipelineError,
    expand_shorthand,
    missing_sources,
)
from chameleon_core._plugins.options import former_names, renamed
from chameleon_core._words import did_you_mean, listing

NAMES = {
    int: "an integer",
    float: "a number",
    str: "a text",
    bool: "true or false",
    types.NoneType: "null",
}
"""Descriptions of scalar types for error messages."""


@attrs.define(eq=False)
class Structurer:
    """Makes instances of annotated types, such as options classes, from a pipeline's values.

    A ``Node`` is a value of a pipeline with its position in the file. If the type is an attrs
    class, the metadata of each field may have these keys:

    - ``duration``: A string such as ``20m`` becomes a number of seconds.
    - ``path``: The value is the name of a file or folder. A relative name becomes absolute,
      relative to the pipeline's folder.
    - ``source``: The value names a Python object, as ``file.py:function`` or ``module:function``. A
      relative ``file.py`` becomes absolute in the same way, and must exist.
    - ``tagged``: The value, or each entry of a list, is a mapping such as ``{dense: {...}}``. Its
      only key is the name of an attrs class, and its value has the options of that class. The
      metadata has a dictionary of these classes by name, or a kind of plugin. In the second case,
      the plugins of that kind provide the classes.
    - ``stages``: The value is a list of stages, each written as in a pipeline. The metadata has the
      kind of plugin of the stages.
    - ``names``: The value is the name of a plugin, or a list of names. The metadata has the kind of
      plugin.

    Args:
        stage: a function that makes the ``StageSpec`` of a kind and a node. It returns None if it
            has reported faults.
        classes: a function that returns the classes of a kind of plugin, by name. The default is
            for installed plugins.
        find: a function of a kind of plugin and a name, which raises an error for an unknown name.
            If None, names are not checked.
        blamed: a function that returns whether a plugin failed to load. If so, an unknown name is
            possibly the name of that plugin, and the error for the name says so.
    """

    _stage: Callable[[str, Node], Any] | None = None
    _classes: Callable[[str], Tags] = registered_classes
    _find: Callable[[str, Node], object] | None = None
    _blamed: Callable[[], bool] = lambda: False
    _owner: str = attrs.field(default="", init=False)
    _path: list[str] = attrs.field(factory=list, init=False)

    def make(self, node: Node, kind: Any, owner: str) -> Any:
        """Make an instance of a type from a node.

        Args:
            node: the value in the pipeline.
            kind: the type: an attrs class or any annotation.
            owner: the stage or section that the options belong to, for error messages, such as
                ``explorer 'ppo'``.

        Raises:
            PipelineError: the value has faults. The message has one line for each.
        """
        self._owner, self._path = owner, []
        return self._structure(node, kind)

    def _structure(self, node: Node, kind: Any) -> Any:
        form, inner = form_of(kind)
        return getattr(self, form)(inner, node)

    def unknown(self, kind: Any, node: Node) -> Any:
        """Raise the error for a type that no option can have."""
        words = f"the plugin declares the type {kind!r}, which no option can have"
        raise self._failed(node.mark, words)

    # ----- values ----------------------------------------------------------------------------

    def anything(self, _: None, node: Node) -> Any:
        """The value without any check."""
        return node.plain()

    def scalar(self, kind: Any, node: Node) -> Any:
        """Read a number, string, bool, path or null of an option.

        NaN, overflowing integers and values of another type are faults.

        Args:
            kind: the type that the option must have.
            node: the value in the pipeline.
        """
        wanted = str if kind is Path else kind
        value: Any = node.value
        if wanted is float and type(value) is int:
            with suppress(OverflowError):
                value = float(value)
        fits = isinstance(value, wanted) and isinstance(value, bool) is (wanted is bool)
        if fits and value == value:  # noqa: PLR0124 - NaN is unequal to itself, and is refused
            return Path(value) if kind is Path else value
        unquoted = wanted is str and value is not None and not isinstance(value, dict | tuple)
        raise self._wrong(node, NAMES[wanted], "; put it in quotes" if unquoted else "")

    def choice(self, choices: Mapping[Any, Any], node: Node) -> Any:
        """Read an option that allows only some values: a ``Literal`` or an enumeration.

        Args:
            choices: the result for each allowed value: the value itself, or the member of an
                enumeration.
            node: the value in the pipeline.
        """
        for choice, chosen in choices.items():
            if type(choice) is type(node.value) and choice == node.value:
                return chosen
        guess = did_you_mean(node.value, [choice for choice in choices if isinstance(choice, str)])
        raise self._wrong(node, listing([str(choice) for choice in choices]), guess)

    # ----- containers ------------------------------------------------------------------------

    def sequence(self, kind: tuple[type, Any], node: Node) -> Any:
        """A list, tuple or set of any length, as the annotation says."""
        origin, inner = kind
        values = self.entries((inner,) * len(node.value) if node.is_sequence else (), node)
        if issubclass(origin, AbstractSet):
            return frozenset(values) if issubclass(origin, frozenset) else set(values)
        return list(values) if origin is list else values

    def entries(self, kinds: tuple[Any, ...], node: Node) -> tuple[Any, ...]:
        """A tuple of as many items as the annotation has types."""
        if not node.is_sequence:
            raise self._wrong(node, "a list")
        if len(kinds) != len(node.value):
            more = f" with {len(node.value)} entries"
            raise self._wrong(node, f"a list of {len(kinds)}", more)
        values = self._all(
            (f"[{index}]", partial(self._structure, item, inner))
            for index, (item, inner) in enumerate(zip(node.value, kinds, strict=True))
        )
        return tuple(values)

    def mapping(self, inner: Any, node: Node) -> dict[str, Any]:
        """A mapping with any keys, whose values have the annotated type."""
        if not node.is_mapping:
            raise self._wrong(node, "a mapping")
        entries = self._all(
            (key, partial(self._structure, item.node, inner)) for key, item in node.items()
        )
        return dict(zip(node.value, entries, strict=True))

    def union(self, kinds: tuple[Any, ...], node: Node) -> Any:
        """The value as the first of several types that it fits."""
        members = [kind for kind in kinds if kind is not types.NoneType]
        if node.value is None and len(members) < len(kinds):
            return None
        failures = []
        for member in members:
            try:
                return self._structure(node, member)
            except PipelineError as error:
                failures.append(error)
        if len(members) == 1:
            raise failures[0]
        # A fault inside a list or a mapping is a better message than that no member fits. The same
        # holds for the faults of a mapping, if only one member is a mapping.
        inside = [error for error in failures if all(p.mark != node.mark for p in error.problems)]
        mappings = [
            failure
            for member, failure in zip(members, failures, strict=True)
            if node.is_mapping and form_of(member)[0] in ("mapping", "section")
        ]
        if inside or len(mappings) == 1:
            raise (inside or mappings)[0]
        raise self._wrong(node, listing([_name_of(member) for member in members]))

    # ----- options classes -------------------------------------------------------------------

    def section(self, kind: Any, node: Node) -> Any:
        """Read an instance of an options class from a mapping, or raise all faults of its options.

        Args:
            kind: the options class.
            node: the mapping in the pipeline.
        """
        try:
            attrs.resolve_types(kind)
        except Exception as error:
            words = f"the plugin's annotations cannot be resolved ({_words(error)})"
            raise self._failed(node.mark, words) from error
        fields = {field.alias: field for field in attrs.fields(kind) if field.init}
        if not node.is_mapping:
            raise self._wrong(node, "a mapping")
        node, problems = _in_current_names(node, kind, self._place())
        problems += [
            PipelineError.Problem(
                mark=item.key_mark,
                message=f"unknown option '{key}' for {self._place()}{did_you_mean(key, fields)}",
            )
            for key, item in node.items()
            if key not in fields
        ]
        problems += [
            PipelineError.Problem(
                mark=node.mark, message=f"missing option '{alias}' for {self._place()}"
            )
            for alias, field in fields.items()
            if field.default is attrs.NOTHING and node.get(alias) is None
        ]
        nodes = {alias: child for alias in fields if (child := node.get(alias)) is not None}
        values = {}
        for alias, inner in nodes.items():
            with self._inside(alias), Collecting(problems):
                values[alias] = self._field(inner, fields[alias])
        # Faults of a stage among the options are collected elsewhere, so a value may be missing
        # without one.
        if problems or len(values) < len(nodes):
            raise PipelineError([*problems, *self._refused(node, kind, values)])
        return self._construct(node, kind, values)

    def _field(self, node: Node, field: attrs.Attribute[Any]) -> Any:
        if field.metadata.get("duration") and isinstance(node.value, str):
            try:
                return parse_duration(node.value)
            except ValueError as error:
                raise self._failed(node.mark, str(error)) from error
        if field.metadata.get("path") or field.metadata.get("source"):
            source = bool(field.metadata.get("source"))
            node = node.absolute(source=source)
            if source and (missing := missing_sources(node)):
                said = [self._failed(at.mark, f"there is no file {file}") for at, file in missing]
                raise PipelineError([problem for error in said for problem in error.problems])
        if self._stage is not None and "stages" in field.metadata:
            return self._stages(node, partial(self._stage, field.metadata["stages"]))
        tags = tags_of(field, self._classes)
        if tags is None:
            value = self._structure(node, Any if field.type is None else field.type)
            if self._find is not None and "names" in field.metadata:
                names = node.value if node.is_sequence else (node,)
                self._all(("", partial(self._find, field.metadata["names"], at)) for at in names)
            return value
        of = field.metadata["tagged"]
        if not node.is_sequence:
            return self._tagged(node, tags, of)
        values = self._all(
            (f"[{index}]", partial(self._tagged, item, tags, of))
            for index, item in enumerate(node.value)
        )
        return values if get_origin(field.type) is list else tuple(values)

    def _stages(self, node: Node, make: Callable[[Node], Any]) -> tuple[Any, ...]:
        if not node.is_sequence:
            raise self._wrong(node, "a list")
        around = self._owner, self._path
        stages = tuple(make(make_stage) for make_stage in node.value)
        self._owner, self._path = around
        if None in stages:
            raise PipelineError([])
        return stages

    def _tagged(self, node: Node, tags: Tags, of: Any) -> Any:
        known = listing(list(tags))
        if not node.is_mapping or len(node.value) != 1:
            raise self._wrong(node, f"a mapping with one key, {known}")
        ((tag, item),) = node.items()
        kind = tags.get(tag)
        if kind is None:
            guess = did_you_mean(tag, tags) or f"; there is {known}"
            message = f"unknown entry '{tag}' for {self._place()}{guess}"
            blamed = isinstance(of, str) and self._blamed()
            raise PipelineError.at(item.key_mark, message, plugin=blamed)
        with self._inside(tag):
            return self.section(kind, expand_shorthand(item.node, kind))

    def _construct(self, node: Node, kind: Any, values: dict[str, Any]) -> Any:
        try:
            return kind(**values)
        except ChameleonError as error:
            raise self._failed(node.mark, error.with_hint()) from error
        except (Exception, SystemExit) as error:
            problems = self._refused(node, kind, values)
            raise (
                PipelineError(problems) if problems else self._failed(node.mark, _words(error))
            ) from error

    def _refused(
        self, node: Node, kind: Any, values: dict[str, Any]
    ) -> list[PipelineError.Problem]:
        """The faults that the class's validators find; the class itself raises only one."""
        problems: list[PipelineError.Problem] = []
        half_made = object.__new__(kind)
        for field in attrs.fields(kind):
            if field.alias in values:
                object.__setattr__(half_made, field.name, values[field.alias])
        for field in attrs.fields(kind):
            value = node.get(field.alias)
            if field.validator is None or value is None or field.alias not in values:
                continue
            try:
                field.validator(half_made, field, values[field.alias])
            except AttributeError:
                continue  # the validator reads an option that is missing
            except (Exception, SystemExit) as error:  # noqa: BLE001 - a plugin may raise anything
                with self._inside(field.alias):
                    problems += self._failed(value.mark, _words(error)).problems
        return problems

    # ----- faults, and the keys that lead to them ---------------------------------------------

    def _all(self, parts: Iterator[tuple[str, Callable[[], Any]]]) -> list[Any]:
        """Run every part, and collect the faults of all of them."""
        values: list[Any] = []
        problems: list[PipelineError.Problem] = []
        for key, part in parts:
            with self._inside(key), Collecting(problems):
                values.append(part())
        if problems:
            raise PipelineError(problems)
        return values

    @contextmanager
    def _inside(self, key: str) -> Iterator[None]:
        self._path.append(key)
        try:
            yield
        finally:
            self._path.pop()

    def _dotted(self) -> str:
        return ".".join(self._path).replace(".[", "[")

    def _place(self) -> str:
        return f"'{self._dotted()}' of {self._owner}" if self._path else self._owner

    def _about(self) -> str:
        return f"option '{self._dotted()}' for {self._owner}" if self._path else self._owner

    def _wrong(self, node: Node, wanted: str, more: str = "") -> PipelineError:
        message = f"{self._about()} must be {wanted}, not {node.in_words()}{more}"
        return PipelineError.at(node.mark, message)

    def _failed(self, mark: Mark, words: str) -> PipelineError:
        # Messages of attrs' validators begin with the attribute's name, which `_about` has already.
        named = f"'{self._path[-1]}' " if self._path else "\0"
        rest = f" {words.removeprefix(named)}" if words.startswith(named) else f": {words}"
        return PipelineError.at(mark, f"{self._about()}{rest}")


def _in_current_names(
    node: Node, options: type, owner: str
) -> tuple[Node, list[PipelineError.Problem]]:
    """A section with present names of options instead of former names, and a list of faults.

    Args:
        node: the section, a mapping.
        options: the options class of the section.
        owner: the stage or section that the options belong to, for error messages.
    """
    former = former_names(options)
    problems = [
        PipelineError.Problem(
            mark=item.key_mark,
            message=f"option '{key}' for {owner} is the former name of '{former[key]}', which is "
            "there too; remove one",
        )
        for key, item in node.items()
        if key in former and former[key] in node.value
    ]
    if not former.keys() & node.value.keys():
        return node, problems
    return Node(value=renamed(node.value, former), mark=node.mark), problems


def _name_of(kind: Any) -> str:
    form, inner = form_of(kind)
    if form == "scalar":
        return NAMES[inner]
    if form == "choice":
        return listing([str(choice) for choice in inner])
    return "a list" if form in ("sequence", "entries") else "a mapping"


def _words(error: BaseException) -> str:
    # Exceptions of attrs' validators have the attribute and the value as further arguments, and
    # that of ``in_`` has the choices between them.
    match error.args:
        case (_, attrs.Attribute(name=name), tuple(choices), value) if all(
            isinstance(choice, str) for choice in choices
        ):
            guess = did_you_mean(value, choices)
            return f"'{name}' must be {listing(choices)}, not {value!r}{guess}"
    return str(error.args[0]) if error.args else type(error).__name__
