"""Makes stages of what was written: a name among a run's plugins, and checked options."""

from __future__ import annotations

import typing
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

import attrs

from chameleon_core.pipeline.jsonable import to_json
from chameleon_core.pipeline.members import with_members
from chameleon_core.pipeline.nodes import Collecting, Mark, Node, PipelineError, Problem, node_of
from chameleon_core.pipeline.schema import StageSpec
from chameleon_core.pipeline.structure import Structurer
from chameleon_core.plugins.manager import Registration
from chameleon_core.plugins.registry import (
    AmbiguousNameError,
    Registry,
    UnknownNameError,
    default_registry,
)
from chameleon_core.words import did_you_mean, with_article


def read_options(values: Mapping[str, Any], options: type, owner: str) -> Any:
    """Options from their JSON values, with the converter that read them first.

    Plugins are loaded only if an option names some: workers start with this.

    Args:
        values: as ``to_json`` wrote them.
        options: their attrs class.
        owner: what they belong to, for errors.

    Raises:
        PipelineError: with everything that is wrong.
    """
    problems: list[Problem] = []
    instance = None
    with Collecting(problems):
        instance = Structurer(lambda kind, node: _stage(kind, node, problems)).make(
            node_of(values, "options"), options, owner
        )
    if problems:
        raise PipelineError(problems)
    return instance


def options_for(factory: Callable[..., Any], values: Mapping[str, Any]) -> Any:
    """The options that a stage's constructor is annotated with, from their JSON values.

    Args:
        factory: the stage's class.
        values: as ``to_json`` wrote them; returned as they are if it is annotated with no class.

    Raises:
        PipelineError: as for ``read_options``.
    """
    constructor = getattr(factory, "__init__") if isinstance(factory, type) else factory  # noqa: B009 - mypy
    hints = typing.get_type_hints(constructor)
    hints.pop("return", None)
    expected = next(iter(hints.values()), None)
    if isinstance(expected, type) and attrs.has(expected):
        return read_options(values, expected, expected.__name__)
    return values


def _stage(kind: str, node: Node, problems: list[Problem]) -> Any:
    return StageReader(default_registry(), problems).listed(kind, node)


class StageReader:
    """Reads stages, and the stages that their options name, and collects what is wrong with them.

    Args:
        registry: where names are looked up.
        problems: what is wrong already; more is added to it.

    Attributes:
        registry: where names are looked up.
        problems: what is wrong.
        structurer: makes options; also of sections that are no stages.
        hints: what to do about names that are unknown.
    """

    def __init__(self, registry: Registry, problems: list[Problem]) -> None:
        self.registry = registry
        self.problems = problems
        self.hints: list[str] = []
        self.structurer = Structurer(self.listed, registry.classes, self.find, self._plugins_failed)

    def value(self, root: Node, key: str, kind: Any, default: Any = None) -> Any:
        """The value of a key that names no stage; the default if it is missing, or wrong."""
        node = root.get(key)
        if node is not None:
            with self.collecting():
                return self.structurer.make(node, kind, f"'{key}'")
        return default

    def listed(self, kind: str, node: Node) -> Any:
        """A stage that the options of another stage name."""
        return self.chosen(f"{with_article(self.registry.kinds[kind].noun)} in a list", kind, node)

    def chosen(self, about: str, kind: str, node: Node) -> Any:
        """A stage written as its name, or as a mapping with its name and options."""
        noun = with_article(self.registry.kinds[kind].noun)
        name = node.get("name") if node.is_mapping else node
        if name is None:
            self.say(node.mark, f"{about} needs a 'name' beside its options")
            return None
        if not isinstance(name.value, str):
            also = ", or 'none' for none" if "none" in self.registry.names(kind) else ""
            self.say(
                name.mark,
                f"{about} must name {noun}, not be {name.in_words()}; "
                f"leave the key out for the default{also}",
            )
            return None
        options = {key: item for key, item in node.items() if key != "name"}
        return self.spec(kind, name, lambda _: Node(value=options, mark=node.mark))

    def spec(self, kind: str, name: Node, section: Callable[[type], Node]) -> Any:
        """A stage of a kind, or None if its problems were added.

        Args:
            kind: a key of ``chameleon_core.plugins.kinds.STAGE_KINDS``.
            name: as written.
            section: gives what was written for an options class.
        """
        with self.collecting():
            entry = self.find(kind, name)
            record = entry.record
            owner = f"{self.registry.kinds[kind].noun} '{name.value}'"
            options = self.structurer.make(section(record.options), record.options, owner)
            options = self.completed(options, name.mark, entry.distribution)
            return StageSpec(
                kind=kind,
                name=self.registry.full_name(entry),
                record=record,
                options=options,
                options_json=to_json(options, classes=self.registry.classes),
                distribution=entry.distribution,
            )
        return None

    def completed(self, options: Any, mark: Mark, author: str) -> Any:
        """Options, or a section, in which the stages that its defaults name are stages.

        Args:
            options: an attrs instance.
            mark: where it was written.
            author: the distribution that wrote the defaults.
        """
        return with_members(options, partial(self._member, attrs.evolve(mark, author=author)))

    def _member(self, mark: Mark, kind: str, name: str) -> Any:
        """A stage with its defaults, which the default of another stage's option names."""
        stage = self.spec(kind, Node(value=name, mark=mark), lambda _: Node(value={}, mark=mark))
        if stage is None:
            raise PipelineError([])
        return stage

    def find(self, kind: str, name: Node) -> Registration:
        """The entry that is registered under a name.

        Raises:
            PipelineError: nothing is, or the name is ambiguous; says where it was written.
        """
        try:
            return self.registry.find(kind, name.value, author=name.mark.author)
        except UnknownNameError as error:
            self.hints.append(error.hint or "")
            # The name may be that of a plugin that failed to load.
            broken = bool(self.registry.errors)
            problem = Problem(mark=name.mark, message=str(error), plugin=broken)
            raise PipelineError([problem]) from error
        except AmbiguousNameError as error:
            message = f"{error}; {error.hint}"
            problem = Problem(mark=name.mark, message=message, plugin=True)
            raise PipelineError([problem]) from error

    def _plugins_failed(self) -> bool:
        """Whether plugins failed to load, one of which an unknown name may be; the hint says so."""
        self.hints += map(str, self.registry.errors)
        return bool(self.registry.errors)

    def say(self, mark: Mark, message: str) -> None:
        """Add a problem."""
        self.problems.append(Problem(mark=mark, message=message))

    def expect_keys(self, node: Node, keys: Collection[str]) -> None:
        """Add the problem of every key of a mapping that is none of these."""
        for key, item in node.items():
            if key not in keys:
                self.say(item.key_mark, f"unknown key '{key}'{did_you_mean(key, keys)}")

    def collecting(self) -> Collecting:
        """Remember what is wrong in a ``with`` block, so that the next part is read too."""
        return Collecting(self.problems, self.hints)

    def check(self) -> None:
        """Raise everything that was wrong.

        Raises:
            PipelineError: something was.
        """
        if self.problems:
            hints = dict.fromkeys(filter(None, self.hints))
            raise PipelineError(self.problems, hint="\n".join(hints) or None)
