"""Files that are made of parts of pipelines, such as suites, read with everything wrong in them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from chameleon_core.pipeline.assemble import Assembler
from chameleon_core.pipeline.nodes import Item, Mark, Node, PipelineError, Problem
from chameleon_core.pipeline.resolve import apply_overrides
from chameleon_core.pipeline.stage_reader import StageReader
from chameleon_core.pipeline.yaml import read_yaml
from chameleon_core.plugins.registry import Registry, default_registry


class DocumentReader(StageReader):
    """Reads a file of parts of pipelines, and collects what is wrong with them.

    Args:
        path: the file; errors call it as it is given here.
        overrides: assignments such as ``seeds=3``, stronger than the file.
        registry: where names are looked up; the installed plugins if None.
        keys: every key that the file may have.
        wanted: begins the sentence that a file which is no mapping gets.

    Attributes:
        root: the file with the overrides.

    Raises:
        PipelineError: it is no mapping.
        ConfigError: it cannot be read.
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
        self.root, problems = apply_overrides(root, overrides)
        super().__init__(registry or default_registry(), problems)
        self.expect_keys(self.root, keys)

    def assembler(self, sections: Mapping[str, Item], mark: Mark) -> Assembler:
        """Assemble a pipeline from parts of the file."""
        return Assembler(Node(value=dict(sections), mark=mark), self.registry, [])
