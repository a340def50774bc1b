"""Loads a pipeline, with the parts of it in other files, and reports all of its faults at once."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from chameleon_core._pipeline.assemble import Assembler
from chameleon_core._pipeline.nodes import Node, PipelineError
from chameleon_core._pipeline.resolve import apply_overrides, merge
from chameleon_core._pipeline.schema import ModelChoice, ResolvedPipeline, SearchChoice
from chameleon_core._pipeline.stage_reader import StageReader
from chameleon_core._pipeline.yaml import read_yaml
from chameleon_core._plugins.registry import Registry


def load_pipeline(
    path: str | Path,
    overrides: Iterable[str] = (),
    *,
    registry: Registry | None = None,
    sharing: bool = False,
    sections: Mapping[str, Any] | None = None,
) -> ResolvedPipeline:
    """Read a pipeline file.

    Args:
        path: the file. Error messages name it as it is written in this argument.
        overrides: assignments such as ``budget.measurements=64``, which override the file.
        registry: the registry of plugins; if None, the registry of installed plugins.
        sharing: whether a pipeline without ``records`` uses the user's own database, as the command
            line does.
        sections: keys of a pipeline, with values that override those of the file.

    Raises:
        PipelineError: the pipeline has faults. The message has one line for each.
        ConfigError: the file cannot be read.
    """
    root = _overlaid(read_yaml(path), sections)
    return _assembler(root, overrides, registry, sharing=sharing).assemble(Path(path).resolve())


def from_dict(
    document: Mapping[str, Any],
    overrides: Iterable[str] = (),
    *,
    registry: Registry | None = None,
    folder: Path | None = None,
    sections: Mapping[str, Any] | None = None,
) -> ResolvedPipeline:
    """Make a pipeline from a mapping with the keys of a pipeline file.

    Args:
        document: the pipeline as JSON values.
        overrides: assignments such as ``budget.measurements=64``, which override ``document``.
        registry: the registry of plugins; if None, the registry of installed plugins.
        folder: the folder for relative paths; the working folder if None.
        sections: keys of a pipeline, with values that override those of ``document``.

    Raises:
        PipelineError: the pipeline has faults. The message has one line for each.
    """
    root = _overlaid(Node.of(document, "pipeline", folder=folder), sections)
    return _assembler(root, overrides, registry).assemble(None)


def model_choice_from_dict(document: Mapping[str, Any]) -> ModelChoice:
    """Load only the parts of a pipeline that are needed to interpret a run's measurements.

    With these parts, a run can be exported even if, for example, its explorer is not installed.

    Args:
        document: the pipeline, with all defaults.

    Raises:
        PipelineError: these parts have faults. The message has one line for each.
    """
    return _assembler(Node.of(document, "pipeline"), (), None).model_choice()


def search_from_dict(document: Mapping[str, Any], registry: Registry | None) -> SearchChoice:
    """Load only the search stages of a tuner, which need neither a model nor a target.

    Args:
        document: the keys of a pipeline's search stages.
        registry: the registry of plugins; if None, the registry of installed plugins.

    Raises:
        PipelineError: the search stages have faults. The message has one line for each.
    """
    return _assembler(Node.of(document, "arguments of the tuner"), (), registry).search()


def _overlaid(root: Node, sections: Mapping[str, Any] | None) -> Node:
    """A pipeline with the keys that a program gave as arguments."""
    if not sections or not (root.is_mapping or root.value is None):
        return root
    over = Node.of(sections, "arguments")
    return Node(value=merge(root.value or {}, over.value), mark=root.mark)


def _assembler(
    root: Node, overrides: Iterable[str], registry: Registry | None, *, sharing: bool = False
) -> Assembler:
    known = registry if registry is not None else Registry.default()
    if root.value is None:
        root = root.with_value({})
    if not root.is_mapping:
        message = f"a pipeline must be a mapping with 'model:' and 'target:', not {root.in_words()}"
        raise PipelineError.at(root.mark, message)
    overridden, problems = apply_overrides(root, overrides, known.sections)
    return Assembler(overridden, known, problems, sharing=sharing)


class DocumentReader(StageReader):
    """Reads a file that consists of parts of pipelines, and collects its faults.

    Args:
        path: the file. Error messages name it as it is written in this argument.
        overrides: assignments such as ``seeds=3``, which override the file.
        registry: the registry of plugins; if None, the registry of installed plugins.
        keys: all keys that the file may have.
        wanted: the beginning of the error message for a file that is no mapping.

    Attributes:
        root: the file after the overrides.

    Raises:
        PipelineError: the file is no mapping.
        ConfigError: the file cannot be read.
    """

    def __init__(
        self,
        path: str | Path,
        overrides: Iterable[str],
        registry: Registry | None,
        *,
        keys: Sequence[str],
        wanted: str,
    ) -> None:
        root = read_yaml(path)
        if not root.is_mapping:
            raise PipelineError.at(root.mark, f"{wanted}, not {root.in_words()}")
        self.root, problems = apply_overrides(root, overrides)
        super().__init__(registry or Registry.default(), problems)
        self.expect_keys(self.root, keys)

    def pipeline(self, *parts: Node) -> ResolvedPipeline:
        """A pipeline from mappings, each of which overrides those before it."""
        return self._assembler(parts).assemble(None)

    def model_choice(self, *parts: Node) -> ModelChoice:
        """The model choice of a pipeline from mappings, as for ``pipeline``."""
        return self._assembler(parts).model_choice()

    def _assembler(self, parts: Sequence[Node]) -> Assembler:
        sections = functools.reduce(merge, (part.value for part in parts))
        return Assembler(attrs.evolve(parts[-1], value=sections), self.registry, [])
