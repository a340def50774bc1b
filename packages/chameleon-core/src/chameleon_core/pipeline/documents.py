"""Files that consist of parts of pipelines, such as suites; all their faults are listed at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from chameleon_core.pipeline.assemble import Assembler
from chameleon_core.pipeline.nodes import Collecting, Item, Mark, Node, PipelineError, Problem
from chameleon_core.pipeline.resolve import apply_overrides
from chameleon_core.pipeline.stage_reader import StageReader
from chameleon_core.pipeline.yaml import read_yaml
from chameleon_core.plugins.registry import Registry, default_registry
from chameleon_core.words import did_you_mean


class DocumentReader:
    """Reads a file that consists of parts of pipelines, and collects its faults.

    Args:
        path: the file. Error messages name it as it is written in this argument.
        overrides: assignments such as ``seeds=3``, which override the file.
        registry: the registry of plugins; if None, the registry of installed plugins.
        keys: all keys that the file may have.
        wanted: the beginning of the error message for a file that is no mapping.

    Attributes:
        root: the file after the overrides.
        registry: where names are looked up.
        problems: the faults so far.
        stages: the reader of the file's sections.

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
        root = read_yaml(Path(path), shown=str(path))
        if not root.is_mapping:
            message = f"{wanted}, not {root.in_words()}"
            raise PipelineError([Problem(mark=root.mark, message=message)])
        self.root, self.problems = apply_overrides(root, overrides)
        self.registry = registry or default_registry()
        self.stages = StageReader(self.registry, self.problems)
        for key, item in self.root.items():
            if key not in keys:
                self.say(item.key_mark, f"unknown key '{key}'{did_you_mean(key, keys)}")

    def say(self, mark: Mark, message: str) -> None:
        """Add a fault at a place of the file."""
        self.problems.append(Problem(mark=mark, message=message))

    def assembler(self, sections: Mapping[str, Item], mark: Mark) -> Assembler:
        """An assembler of a pipeline from parts of the file."""
        return Assembler(Node(value=dict(sections), mark=mark), self.registry, [])

    def collecting(self) -> Collecting:
        """Return a ``with`` block whose faults are collected, so that the next part is read too."""
        return Collecting(self.problems, self.stages.hints)

    def check(self) -> None:
        """Raise an error if the file has faults.

        Raises:
            PipelineError: the file has faults. The message has one line for each.
        """
        if self.problems:
            hints = dict.fromkeys(filter(None, self.stages.hints))
            raise PipelineError(self.problems, hint="\n".join(hints) or None)
