"""Makes relative file names in a pipeline absolute, against where they were written."""

from __future__ import annotations

import os
from pathlib import Path

from chameleon_core.pipeline.nodes import Item, Node


def absolute(node: Node, *, source: bool = False) -> Node:
    """The node with every text in it made an absolute path.

    Args:
        node: a text, or a list or mapping with texts.
        source: whether the texts name Python objects, ``file.py:function`` or
            ``module:function``; of these only files have a folder.
    """
    value = node.value
    if isinstance(value, str):
        folder = node.mark.folder or Path.cwd()
        value = _source(value, folder) if source else _join(value, folder)
    elif node.is_sequence:
        value = tuple(absolute(one, source=source) for one in value)
    elif node.is_mapping:
        value = {
            key: Item(key_mark=item.key_mark, node=absolute(item.node, source=source))
            for key, item in node.items()
        }
    return Node(value=value, mark=node.mark)


def _join(text: str, folder: Path) -> str:
    return os.path.normpath(folder / Path(text).expanduser())


def _source(text: str, folder: Path) -> str:
    file, colon, attribute = text.rpartition(":")
    if not colon:
        file, attribute = text, ""
    if file.endswith(".py") or "/" in file or os.sep in file:
        return _join(file, folder) + colon + attribute
    return text
