"""Makes relative file names in a pipeline absolute, against where they were written."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
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
    if re.match(r"[a-z]+://", text):
        return text  # a URL, where an option takes one
    return os.path.normpath(folder / Path(text).expanduser())


def missing_sources(node: Node) -> list[tuple[Node, str]]:
    """The texts of an absolute source that name a file which is not there, and the file."""
    if isinstance(node.value, str):
        file, _, _ = _parts(node.value)
        absent = _is_file_name(file) and not Path(file).is_file()
        return [(node, file)] if absent else []
    inner: Iterable[Node] = ()
    if node.is_sequence:
        inner = node.value
    elif node.is_mapping:
        inner = (item.node for _, item in node.items())
    return [found for one in inner for found in missing_sources(one)]


def _source(text: str, folder: Path) -> str:
    file, colon, attribute = _parts(text)
    return _join(file, folder) + colon + attribute if _is_file_name(file) else text


def _parts(text: str) -> tuple[str, str, str]:
    file, colon, attribute = text.rpartition(":")
    return (file, colon, attribute) if colon else (text, "", "")


def _is_file_name(text: str) -> bool:
    return text.endswith(".py") or "/" in text or os.sep in text
