"""Reads the section ``target`` of a pipeline: a text, a mapping, or either with its resolver."""

from __future__ import annotations

import json
from typing import Any

import attrs

from chameleon_core.pipeline.nodes import Collecting, Mark, Node, Problem
from chameleon_core.pipeline.stage_reader import StageReader
from chameleon_core.plugins.first_party import CORE
from chameleon_core.plugins.registry import Registry
from chameleon_core.words import did_you_mean


class TargetReader:
    """Reads it.

    Args:
        stages: reads its resolver.
        registry: knows resolvers.
        problems: what is wrong is added here.
    """

    def __init__(self, stages: StageReader, registry: Registry, problems: list[Problem]) -> None:
        self._stages = stages
        self._registry = registry
        self._problems = problems

    def read(self, root: Node) -> tuple[Any, Any, Any]:
        """The target for its resolver, the same as it was written, and the resolver.

        Args:
            root: the pipeline. Nothing useful is returned where a problem was found.
        """
        node = root.get("target")
        if node is None:
            self._say(root.mark, "missing 'target', such as 'native'")
            return None, None, None
        text, name = self._target_and_resolver(node)
        shown, made = text.plain(), None
        with Collecting(self._problems):
            if text.is_mapping:
                # Resolvers read texts.
                made = json.dumps(shown, sort_keys=True)
            else:
                made = self._stages.structurer.make(text, str, "'target'")
        if made is not None and not made.strip():
            self._say(text.mark, "'target' is empty; write 'native' for this machine")
        known = self._registry.names("targets")
        if name is None and not known:
            return made, shown, None
        if name is None and len(known) > 1:
            self._say(
                node.mark,
                f"several plugins read targets; write {{resolver: {known[0]}, text: ...}} to choose"
                f" among {', '.join(known)}",
            )
            return made, shown, None
        chosen = name or Node(value=known[0], mark=attrs.evolve(node.mark, author=CORE))
        resolver = self._stages.spec("targets", chosen, lambda _: Node(value={}, mark=chosen.mark))
        return made, shown, resolver

    def _target_and_resolver(self, node: Node) -> tuple[Node, Node | None]:
        """What was written of the target itself, a text or a mapping, and who is to read it."""
        text, name, known = node, None, ("text", "resolver")
        if node.is_mapping and (node.get("text") or node.get("resolver")):
            for key, item in node.items():
                if key not in known:
                    guess = did_you_mean(key, known)
                    self._say(item.key_mark, f"unknown option '{key}' for the target{guess}")
            text, name = node.get("text") or Node(value=None, mark=node.mark), node.get("resolver")
        if text.is_mapping and text.get("kind") is None:
            guess = next(iter(filter(None, (did_you_mean(key, known) for key in text.value))), "")
            example = "{kind: llvm, mcpu: znver4, num-cores: 2}"
            self._say(text.mark, f"'target' has no 'kind'{guess}; a mapping is such as {example}")
        return text, name

    def _say(self, mark: Mark, message: str) -> None:
        self._problems.append(Problem(mark=mark, message=message))


__all__ = ["TargetReader"]
