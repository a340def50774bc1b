"""Assembles a pipeline from its sections: stages with checked options, or a list of all faults."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from chameleon_core._pipeline import schema
from chameleon_core._pipeline.jsonable import to_json
from chameleon_core._pipeline.members import leaves_of
from chameleon_core._pipeline.nodes import (
    Item,
    Mark,
    Node,
    PipelineError,
    expand_shorthand,
    expanded,
)
from chameleon_core._pipeline.record_locations import NO_RECORDS, OWN_RECORDS, records_location
from chameleon_core._pipeline.resolve import SEARCH, expand_presets
from chameleon_core._pipeline.stage_reader import StageReader
from chameleon_core._plugins.first_party import CORE
from chameleon_core._plugins.manager import Registration
from chameleon_core._plugins.registry import Registry
from chameleon_core._words import did_you_mean

_KIND = "record_databases"


def databases_of(
    root: Node, stages: StageReader, *, by_default: bool
) -> tuple[tuple[schema.StageSpec, ...] | None, Any]:
    """Read the key ``records`` of a pipeline.

    Its value is the path or URL of a database, ``none``, ``default``, a mapping with a ``name``, or
    a list of these.

    Args:
        root: the pipeline as nodes.
        stages: the reader of stages.
        by_default: whether a pipeline without the key uses the database ``default``.

    Returns:
        ``ResolvedPipeline.records``, and the value of the key in ``ResolvedPipeline.document``,
        which is None if the pipeline does not have the key.
    """
    node = root.get("records")
    if node is None or node.value is None:
        if not by_default or len(_of_places(stages.registry)) != 1:
            return None, None
        mark = Mark(source="records", author=CORE)
        return _specs(Node(value=OWN_RECORDS, mark=mark), stages), None
    entries = node.value if node.is_sequence else (node,)
    if len(entries) > 1 and any(entry.value == NO_RECORDS for entry in entries):
        stages.say(node.mark, f"'{NO_RECORDS}' stands alone; remove it, or the others")
    specs: list[schema.StageSpec] = []
    written: list[Any] = []
    for entry in entries:
        more = _specs(entry, stages)
        specs += more
        # A word is written as it is, because its meaning depends on the machine.
        word = entry.value if entry.value in (NO_RECORDS, OWN_RECORDS) else None
        written += [word] if word else [spec.to_json() for spec in more]
    return tuple(specs), written[0] if len(written) == 1 else written


def _specs(node: Node, stages: StageReader) -> tuple[schema.StageSpec, ...]:
    text, registry = node.value, stages.registry
    if isinstance(text, str):
        if text == OWN_RECORDS:
            text = records_location() or OWN_RECORDS
        if text == NO_RECORDS:
            return ()
        known = _of_places(registry)
        if len(known) != 1:
            names = ", ".join(registry.full_name(entry) for entry in known) or "none"
            message = f"a place alone means one kind of record database, and {names} of the "
            message += "installed ones take places; write a mapping with its 'name'"
            stages.say(node.mark, message)
            return ()
        [entry] = known
        mark = attrs.evolve(node.mark, author=CORE)
        name = Node(value=registry.full_name(entry), mark=mark)
        value = {"name": Item(key_mark=node.mark, node=name)}
        if text != OWN_RECORDS:
            path = Node(value=text, mark=node.mark)
            value[entry.record.place_option] = Item(key_mark=node.mark, node=path)
        node = Node(value=value, mark=node.mark)
    spec = stages.chosen("a record database", _KIND, node)
    return () if spec is None else (spec,)


def _of_places(registry: Registry) -> list[Registration]:
    """The kinds of databases that a path or URL alone can name."""
    return [entry for entry in registry.entries(_KIND) if entry.record.place_option]


def _shortest(options: dict[str, Any]) -> Any:
    """A frontend's options in short form: the value alone if there is only one option."""
    values = list(options.values())
    alone = len(values) == 1 and values[0] is not None and not isinstance(values[0], Mapping)
    return values[0] if alone else options


class Assembler(StageReader):
    """Checks one pipeline, section by section, and collects the faults of all sections.

    Args:
        root: the user's pipeline as a mapping, after overrides.
        registry: the registry in which names are looked up.
        problems: the list of faults that were found before. The assembler adds faults to this list.
        sharing: whether a pipeline without the key ``records`` uses the user's own database.
    """

    def __init__(
        self,
        root: Node,
        registry: Registry,
        problems: list[PipelineError.Problem],
        *,
        sharing: bool = False,
    ) -> None:
        super().__init__(registry, problems)
        self._sharing = sharing
        self._preset = self._known_preset(root)
        self._root = expand_presets(root, self._preset, registry)

    def assemble(self, source: Path | None) -> schema.ResolvedPipeline:
        """Return the pipeline, or raise a ``PipelineError`` with all faults."""
        keys = self.registry.pipeline_keys
        self.expect_keys(self._root, keys)
        model = self._model()
        target, shown, resolver = self._target()
        brought = self._sections(model)
        stages = {key: self._stage(key, kind) for key, kind in self.registry.stages.items()}
        self._expect_scores(stages)
        warm_start = self._warm_start()
        records, written = databases_of(self._root, self, by_default=self._sharing)
        baselines = self._baselines()
        fix = self._root.get("fix")
        fixed = schema.fixed_knobs(fix, self.problems)
        budget = self.value(self._root, "budget", schema.Budget, schema.Budget())
        require = self._requirement(baselines)
        seed = self._seed()
        output = self._output(source)
        self.check()
        choice = shown if resolver is None else {"resolver": resolver.name, "text": shown}
        sections = {
            "model": {model.name: _shortest(model.options_json)},
            "target": choice if len(self.registry.names("targets")) > 1 else shown,
            **{name: self._written(section) for name, section in brought.items()},
            "fix": (fix and fix.plain()) or None,
            **{key: {"name": spec.name, **spec.options_json} for key, spec in stages.items()},
            "warm_start": [str(folder) for folder in warm_start] or None,
            "records": written,
            "baselines": [{"name": spec.name, **spec.options_json} for spec in baselines],
            "budget": to_json(budget),
            "require": to_json(require),
            "seed": seed,
            "output": str(output),
        }
        return schema.ResolvedPipeline(
            model=model,
            target=target,
            target_resolver=resolver,
            sections=brought,
            registry=self.registry,
            **stages,
            warm_start=warm_start,
            records=records,
            baselines=tuple(baselines),
            fix=fixed,
            budget=budget,
            require=require,
            seed=seed,
            output=output,
            preset=self._preset,
            source=source,
            root=self._root,
            # Keys without a value are left out, so that older run folders without the key still
            # match.
            document={key: sections[key] for key in keys if sections.get(key) is not None},
        )

    def model_choice(self) -> schema.ModelChoice:
        """Return the pipeline's model, space, sections and fixed knobs, which records depend on.

        If these parts have faults, the method raises a ``PipelineError`` with all of them.
        """
        model, space = self._model(), self._stage("space", self.registry.stages["space"])
        sections = self._sections(model, measured=True)
        fixed = schema.fixed_knobs(self._root.get("fix"), self.problems)
        self.check()
        return schema.ModelChoice(model=model, space=space, sections=sections, fix=fixed)

    def search(self) -> schema.SearchChoice:
        """Return the pipeline's search stages with their options, budget and seed.

        If these parts have faults, the method raises a ``PipelineError`` with all of them.
        """
        stages = {key: self._stage(key, self.registry.stages[key]) for key in SEARCH}
        self._expect_scores(stages)
        budget = self.value(self._root, "budget", schema.Budget, schema.Budget())
        seed = self._seed()
        self.check()
        return schema.SearchChoice(**stages, budget=budget, seed=seed)

    # Each of the methods below returns nothing useful where it found a problem; ``assemble`` raises
    # before anything reads it.

    def _known_preset(self, root: Node) -> str | None:
        name: str | None = self.value(root, "preset", str)
        if name is not None:
            with self.collecting():
                self.find("presets", root.value["preset"].node)
                return name
        return None

    def _model(self) -> Any:
        node = self._root.get("model")
        example = "such as {operators: [...]}"
        if node is None:
            self.say(self._root.mark, f"missing 'model', a mapping with one key, {example}")
            return None
        if not node.is_mapping or not node.value:
            self.say(
                node.mark,
                f"'model' must be a mapping with one key, the frontend, {example}, not "
                f"{node.in_words()}",
            )
            return None
        (name, item), *others = node.items()
        for key, other in others:
            self.say(
                other.key_mark,
                f"'model' has one key, the frontend, and '{key}' is a second one; the options "
                f"of '{name}' go below it",
            )
        name_node = Node(value=name, mark=item.key_mark)
        return self.spec("frontends", name_node, lambda kind: expand_shorthand(item.node, kind))

    def _target(self) -> tuple[Any, Any, Any]:
        """The target as a string for its resolver, as the user wrote it, and the resolver."""
        node = self._root.get("target")
        if node is None:
            self.say(self._root.mark, "missing 'target', such as 'native'")
            return None, None, None
        text, name = self._target_and_resolver(node)
        shown, target = text.plain(), None
        with self.collecting():
            if text.is_mapping:
                # Resolvers read strings.
                target = json.dumps(shown, sort_keys=True)
            else:
                target = self.structurer.make(text, str, "'target'")
        if target is not None and not target.strip():
            self.say(text.mark, "'target' is empty; write 'native' for this machine")
        known = self.registry.names("targets")
        if name is None and not known:
            return target, shown, None
        if name is None and len(known) > 1:
            self.say(
                node.mark,
                f"several plugins read targets; write {{resolver: {known[0]}, text: ...}} to choose"
                f" among {', '.join(known)}",
            )
            return target, shown, None
        chosen = name or Node(value=known[0], mark=attrs.evolve(node.mark, author=CORE))
        resolver = self.spec("targets", chosen, lambda _: Node(value={}, mark=chosen.mark))
        return target, shown, resolver

    def _target_and_resolver(self, node: Node) -> tuple[Node, Node | None]:
        """The target itself, a string or a mapping, and the name of its resolver, if any."""
        text, name, known = node, None, ("text", "resolver")
        if node.is_mapping and (node.get("text") or node.get("resolver")):
            for key, item in node.items():
                if key not in known:
                    guess = did_you_mean(key, known)
                    self.say(item.key_mark, f"unknown option '{key}' for the target{guess}")
            text, name = node.get("text") or Node(value=None, mark=node.mark), node.get("resolver")
        if text.is_mapping and text.get("kind") is None:
            guess = next(iter(filter(None, (did_you_mean(key, known) for key in text.value))), "")
            example = "{kind: llvm, mcpu: znver4, num-cores: 2}"
            self.say(text.mark, f"'target' has no 'kind'{guess}; a mapping is such as {example}")
        return text, name

    def _sections(self, model: Any, *, measured: bool = False) -> dict[str, Any]:
        """The sections of plugins that are not empty.

        With ``measured``, only the sections that measurements depend on.
        """
        sections: dict[str, Any] = {}
        for name, record in self.registry.sections.items():
            node = self._root.get(name)
            if node is None or node.value is None or (measured and not record.measured):
                continue
            with self.collecting():
                node = expand_shorthand(node, record.options)
                section = self.structurer.make(node, record.options, f"'{name}'")
                section = self.completed(section, node.mark, CORE)
                if model is not None:
                    self.problems += section.problems(node, model)
                if self._written(section) is not None:
                    sections[name] = section
        return sections

    def _written(self, section: Any) -> Any:
        return to_json(section, classes=self.registry.classes)

    def _stage(self, key: str, kind: str) -> Any:
        item = self._root.value.get(key)
        if item is None:
            names = ", ".join(self.registry.names(kind))
            self.say(
                self._root.mark,
                f"missing '{key}', and no preset gives one; installed: {names or 'none'}",
            )
            return None
        return self.chosen(f"'{key}'", kind, item.node)

    def _expect_scores(self, stages: Mapping[str, Any]) -> None:
        """Record a problem if the explorer needs scores that the cost model does not predict."""
        explorer, model = stages["explorer"], stages["cost_model"]
        blind = explorer and all(leaf.record.needs_cost_model for leaf in leaves_of(explorer))
        if blind and model and not model.record.predicts:
            entries = self.registry.entries("explorers")
            others = (entry.name for entry in entries if not entry.record.needs_cost_model)
            marks = [self._root.value[key].node.mark for key in ("explorer", "cost_model")]
            self.say(
                next((mark for mark in marks if mark.line), marks[0]),
                f"explorer '{explorer.name}' needs the scores of a cost model, and cost model "
                f"'{model.name}' predicts none; choose another cost model, or an explorer that "
                f"needs none ({', '.join(others)})",
            )

    def _warm_start(self) -> tuple[Path, ...]:
        node = self._root.get("warm_start")
        if node is None or node.value is None:
            return ()
        folders: list[Path] = []
        for entry in node.value if node.is_sequence else (node,):
            with self.collecting():
                folder = Path(self.structurer.make(entry.absolute(), str, "'warm_start'"))
                if not folder.is_dir():
                    self.say(entry.mark, f"there is no run folder {folder} to start from")
                folders.append(folder)
        return tuple(folders)

    def _baselines(self) -> list[Any]:
        node = self._root.get("baselines")
        if node is None:
            return []
        if node.value == "none":
            self.say(node.mark, "there is no baseline 'none'; write `baselines: []`")
            return []
        entries = node.value if node.is_sequence else (node,)
        specs = [self.chosen("a baseline", "baselines", entry) for entry in entries]
        names: set[str] = set()
        for entry, spec in zip(entries, specs, strict=True):
            if spec is not None and spec.name in names:
                self.say(entry.mark, f"baseline '{spec.name}' is there twice; remove one")
            names |= {spec.name} if spec is not None else set()
        return specs

    def _requirement(self, baselines: list[Any]) -> schema.Requirement | None:
        require: schema.Requirement | None = self.value(
            self._root, "require", schema.Requirement | None
        )
        names = [spec.name for spec in baselines if spec is not None]
        if require is not None and require.against not in names:
            # ``baselines`` has the full name if another distribution has a baseline of the same
            # name.
            full = [name for name in names if name.rpartition(":")[2] == require.against]
            require = attrs.evolve(require, against=full[0]) if len(full) == 1 else require
        if require is not None and require.against and require.against not in names:
            node = self._root.get("require")
            mark = ((node and node.get("against")) or self._root).mark
            self.say(
                mark,
                f"'require' is against '{require.against}', which 'baselines' does not list"
                f"{did_you_mean(require.against, names)}",
            )
        return require

    def _seed(self) -> int:
        seed: int = self.value(self._root, "seed", int, 0)
        if seed < 0:
            self.say(self._root.value["seed"].node.mark, f"'seed' must be at least 0, not {seed}")
        return seed

    def _output(self, source: Path | None) -> Path:
        # Outputs are relative to the working folder, inputs to the pipeline's folder.
        default = f"runs/{source.stem if source is not None else 'pipeline'}"
        text: str = self.value(self._root, "output", str, default)
        mark = (self._root.get("output") or self._root).mark
        if not text.strip() or "\0" in text:
            problem = "contains the character NUL" if text.strip() else "is empty"
            self.say(mark, f"'output' {problem}; name a folder for the run")
        with self.collecting():
            return Path(os.path.normpath(Path.cwd() / expanded(text, mark)))
        return Path()
