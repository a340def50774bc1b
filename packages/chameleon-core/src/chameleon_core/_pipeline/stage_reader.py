"""Makes stages from parts of a pipeline file: finds each plugin, and checks its options."""

from __future__ import annotations

import typing
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

import attrs

from chameleon_core._pipeline.jsonable import to_json
from chameleon_core._pipeline.members import with_members
from chameleon_core._pipeline.nodes import Collecting, Mark, Node, PipelineError
from chameleon_core._pipeline.schema import StageSpec
from chameleon_core._pipeline.structure import Structurer
from chameleon_core._plugins.manager import Registration
from chameleon_core._plugins.registry import AmbiguousNameError, Registry, UnknownNameError
from chameleon_core._words import did_you_mean, with_article


def read_options(values: Mapping[str, Any], options: type, owner: str) -> Any:
    """Make an options object from JSON values, with the same checks as for a pipeline file.

    Worker processes call this function when they start. So that they start fast, plugins are loaded
    only if an option names a plugin.

    Args:
        values: the options, as ``to_json`` wrote them.
        options: the attrs class of the options.
        owner: the stage that the options belong to, for error messages.

    Raises:
        PipelineError: the options have faults. The message has one line for each.
    """
    problems: list[PipelineError.Problem] = []
    instance = None
    with Collecting(problems):
        structurer = Structurer(
            lambda kind, node: StageReader(Registry.default(), problems).listed(kind, node)
        )
        instance = structurer.make(Node.of(values, "options"), options, owner)
    if problems:
        raise PipelineError(problems)
    return instance


def options_for(factory: Callable[..., Any], values: Mapping[str, Any]) -> Any:
    """Read the options of a stage from JSON values, for the class in its constructor's annotation.

    Args:
        factory: the stage's class. Its first annotated argument is the options.
        values: the options, as ``to_json`` wrote them. They are returned unchanged if the
            annotation is not an attrs class.

    Raises:
        PipelineError: the options have faults. The message has one line for each.
    """
    expected = options_class(factory)
    return values if expected is None else read_options(values, expected, expected.__name__)


def options_class(factory: Callable[..., Any]) -> type | None:
    """The attrs class of a stage's options, from its constructor's annotation; None without one."""
    constructor = getattr(factory, "__init__") if isinstance(factory, type) else factory  # noqa: B009 - for mypy
    hints = typing.get_type_hints(constructor)
    hints.pop("return", None)
    expected = next(iter(hints.values()), None)
    return expected if isinstance(expected, type) and attrs.has(expected) else None


def create_stage(
    kind: str,
    value: StageSpec | Mapping[str, Any] | str,
    context: Any = None,
    *,
    registry: Registry | None = None,
) -> Any:
    """Make a stage from its name, or from a mapping with ``name`` and options.

    A stage that has other stages as options, such as a portfolio with members, makes them with this
    function.

    Args:
        kind: the kind of the stage, such as ``explorers``.
        value: the stage as in a pipeline file, or as a pipeline resolved it. A name stands for the
            plugin with default options.
        context: the context of the stage (``StageSpec.create``).
        registry: the registry in which names are looked up; the installed plugins if None.

    Raises:
        PluginError: the plugin is unknown, or cannot be imported or made.
        PipelineError: the options have faults.
    """
    if isinstance(value, StageSpec):
        return value.create(context)
    registry = registry or Registry.default()
    if isinstance(value, str):
        return registry.create(kind, value, context=context)
    noun = registry.kinds[kind].noun
    reader = StageReader(registry, [])
    stage = reader.chosen(with_article(noun), kind, Node.of(value, noun))
    reader.check()
    return stage.create(context)


class StageReader:
    """Reads stages, and the stages that their options name, and collects the faults.

    Args:
        registry: the registry in which names are looked up.
        problems: the list of faults, to which this object adds faults.

    Attributes:
        registry: the registry in which names are looked up.
        problems: the list of faults.
        structurer: the object that makes options of stages, and other sections of a pipeline, from
            values of the file.
        hints: the next steps for the user about unknown names.
    """

    def __init__(self, registry: Registry, problems: list[PipelineError.Problem]) -> None:
        self.registry = registry
        self.problems = problems
        self.hints: list[str] = []
        self.structurer = Structurer(self.listed, registry.classes, self.find, self._plugins_failed)

    def value(self, root: Node, key: str, kind: Any, default: Any = None) -> Any:
        """Read the value of a pipeline's key that names no stage, such as ``seed``.

        If the value has faults, they are recorded, and ``default`` is returned.

        Args:
            root: the pipeline as nodes.
            key: the key.
            kind: the type that the value must have.
            default: the value if the key is missing.
        """
        node = root.get(key)
        if node is not None:
            with self.collecting():
                return self.structurer.make(node, kind, f"'{key}'")
        return default

    def listed(self, kind: str, node: Node) -> Any:
        """Read a stage that is an entry of another stage's option, such as a member of a portfolio.

        Args:
            kind: the kind of the stage, such as ``explorers``.
            node: the entry of the list.
        """
        return self.chosen(f"{with_article(self.registry.kinds[kind].noun)} in a list", kind, node)

    def chosen(self, about: str, kind: str, node: Node) -> Any:
        """Read a stage that is written as its name, or as a mapping with ``name`` and options.

        The result is a ``StageSpec``, or None if the stage has faults, which are then recorded.

        Args:
            about: the subject of error messages, such as ``'explorer'``.
            kind: the kind of the stage, such as ``explorers``.
            node: the stage as the user wrote it.
        """
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
        return self.spec(kind, name, lambda _: node.without("name"))

    def spec(self, kind: str, name: Node, section: Callable[[type], Node]) -> Any:
        """Make a stage of a kind; if it has faults, record these and return None.

        Args:
            kind: the kind of the stage, a key of ``chameleon_core._plugins.kinds.STAGE_KINDS``.
            name: the name of the stage as the pipeline has it.
            section: a function of the stage's options class, which returns the node with the
                options.
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
        """Replace names of stages in default values of options by the resolved stages.

        Args:
            options: the options or section, an attrs instance.
            mark: the place of the options in the pipeline.
            author: the distribution that registers the options and wrote their defaults.
        """
        return with_members(options, partial(self._member, attrs.evolve(mark, author=author)))

    def _member(self, mark: Mark, kind: str, name: str) -> Any:
        """A stage with default options, which a default value of another stage's option names."""
        stage = self.spec(kind, Node(value=name, mark=mark), lambda _: Node(value={}, mark=mark))
        if stage is None:
            raise PipelineError([])
        return stage

    def find(self, kind: str, name: Node) -> Registration:
        """Find the registered plugin that a pipeline names.

        Args:
            kind: the kind of plugin, such as ``explorers``.
            name: the name as the pipeline has it.

        Raises:
            PipelineError: no plugin has this name, or the name is ambiguous. The message has the
                name's place.
        """
        try:
            return self.registry.find(kind, name.value, author=name.mark.author)
        except UnknownNameError as error:
            self.hints.append(error.hint or "")
            # The name may be that of a plugin that failed to load.
            raise PipelineError.at(
                name.mark, str(error), plugin=bool(self.registry.errors)
            ) from error
        except AmbiguousNameError as error:
            raise PipelineError.at(name.mark, f"{error}; {error.hint}", plugin=True) from error

    def _plugins_failed(self) -> bool:
        """Whether plugins failed to load, so that an unknown name may be one of theirs.

        If so, their errors are added to the hints.
        """
        self.hints += map(str, self.registry.errors)
        return bool(self.registry.errors)

    def say(self, mark: Mark, message: str) -> None:
        """Add a fault at a place of the pipeline."""
        self.problems.append(PipelineError.Problem(mark=mark, message=message))

    def expect_keys(self, node: Node, keys: Collection[str]) -> None:
        """Record a fault for every key of a mapping that is not in ``keys``.

        Args:
            node: the mapping.
            keys: the keys that the mapping may have.
        """
        for key, item in node.items():
            if key not in keys:
                self.say(item.key_mark, f"unknown key '{key}'{did_you_mean(key, keys)}")

    def collecting(self) -> Collecting:
        """A context that records the errors raised in it as faults, instead of passing them on.

        So the caller can go on to read the next part of the file.
        """
        return Collecting(self.problems, self.hints)

    def check(self) -> None:
        """Raise one error with all faults that were recorded; do nothing if there are none.

        Raises:
            PipelineError: at least one fault was recorded.
        """
        if self.problems:
            hints = dict.fromkeys(filter(None, self.hints))
            raise PipelineError(self.problems, hint="\n".join(hints) or None)
