"""Files that consist of parts of pipelines, such as suites; all their faults are listed at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from chameleon_core.pipeline.assemble import Assembler
from chameleon_core.pipeline.nodes import Item, Mark, Node, PipelineError
from chameleon_core.pipeline.resolve import apply_overrides
from chameleon_core.pipeline.stage_reader import StageReader
from chameleon_core.pipeline.yaml import read_yaml
from chameleon_core.plugins.registry import Registry, default_registry


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
        super().__init__(registry or default_registry(), problems)
        self.expect_keys(self.root, keys)

    def assembler(self, sections: Mapping[str, Item], mark: Mark) -> Assembler:
        """An assembler of a pipeline from parts of the file."""
        return Assembler(Node(value=dict(sections), mark=mark), self.registry, [])
