"""What can be seen to be wrong with a pipeline before it runs, each thing with its place.

The target is resolved, the code of every stage is imported, and the model's source is looked for.
Nothing is read of the model, and nothing is compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import attrs

from chameleon_core.errors import ChameleonError, PluginError
from chameleon_core.loop.plugin_contract import contract_of
from chameleon_core.loop.start.tasks import frontend_of, target_of
from chameleon_core.pipeline.nodes import Node, PipelineError, Problem
from chameleon_core.pipeline.resolve import STAGES, apply_overrides, expand_presets
from chameleon_core.pipeline.schema import ResolvedPipeline, StageSpec
from chameleon_core.pipeline.yaml import read_yaml
from chameleon_core.plugins.factory import load_factory
from chameleon_core.plugins.registry import Registry, default_registry


def inspect_pipeline(
    pipeline: ResolvedPipeline,
    path: str | Path,
    overrides: Iterable[str] = (),
    *,
    registry: Registry | None = None,
) -> None:
    """Look at what a pipeline names.

    Args:
        pipeline: as ``load_pipeline`` returned it.
        path: the file that it is from; errors call it as it is given here.
        overrides: assignments that it was read with.
        registry: where names were looked up; the installed plugins where None.

    Raises:
        PipelineError: with everything that is wrong, one line each. It has the exit code of what it
            is about where that is the same for all.
    """
    root, _ = apply_overrides(read_yaml(Path(path), shown=str(path)), overrides)
    inspection = _Inspection(expand_presets(root, pipeline.preset, registry or default_registry()))
    inspection.look_at(pipeline)
    inspection.raise_problems()


class _Inspection:
    """Collects what is wrong with one pipeline.

    Args:
        root: what was written, with what its presets say.
    """

    def __init__(self, root: Node) -> None:
        self._root = root
        self._found: list[tuple[Problem, ChameleonError]] = []

    def look_at(self, pipeline: ResolvedPipeline) -> None:
        """Try whatever costs no more than imports."""
        # First: TVM is faster to import where torch, which a stage may need, is not there yet.
        self._try("target", partial(target_of, pipeline))
        for key in STAGES:
            for spec in _with_members(getattr(pipeline, key)):
                self._try(key, partial(load_factory, spec.factory))
        for key, specs in (("baselines", pipeline.baselines), ("records", pipeline.records or ())):
            for spec in specs:
                self._try(key, partial(load_factory, spec.factory))
        self._try("model", partial(_look_for_source, pipeline))

    def raise_problems(self) -> None:
        """Raise what was found, if anything was."""
        if not self._found:
            return
        hints = dict.fromkeys(error.hint for _, error in self._found if error.hint)
        raised = PipelineError([one for one, _ in self._found], hint="\n".join(hints) or None)
        codes = {error.exit_code for _, error in self._found}
        if len(codes) == 1:
            (raised.exit_code,) = codes
        raise raised from self._found[0][1]

    def _try(self, key: str, part: Callable[[], object]) -> None:
        try:
            part()
        except ChameleonError as error:
            node = self._root.get(key) or self._root
            plugin = isinstance(error, PluginError)
            self._found.append((Problem(mark=node.mark, message=str(error), plugin=plugin), error))


def _look_for_source(pipeline: ResolvedPipeline) -> None:
    frontend = frontend_of(pipeline)
    with contract_of(pipeline.model).call("look for the model"):
        frontend.check_source()


def _with_members(spec: StageSpec) -> Iterator[StageSpec]:
    """A stage, and those that its options name."""
    yield spec
    for field in attrs.fields(type(spec.options)):
        if "stages" in field.metadata:
            members: tuple[Any, ...] = getattr(spec.options, field.name)
            for member in members:
                yield from _with_members(member)


__all__ = ["inspect_pipeline"]
