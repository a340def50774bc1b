"""How large this repository is and how it hangs together, against a table that may only shrink.

``python tools/size.py`` prints the table and fails if a figure is above ``tools/size.toml``;
``--update`` writes lower figures there. Whoever needs a higher one edits the file and says why in
the change. A line of code is one with a token that is neither comment nor docstring, as in
tinygrad's ``sz.py``.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import sys
import tokenize
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from imports import (
    ROOT,
    Graph,
    circles_in,
    folders_of,
    graph_of,
    imports_in,
    is_door,
    modules_of,
    reached_from,
)

TABLE = ROOT / "tools" / "size.toml"
IMPORTER = "chameleon_networks._importers.sources"
NETWORKS = "chameleon_networks"
BOTH_HALVES = ("chameleon_tvm", NETWORKS)
_REDUCED = re.compile(r"(?<![A-Za-z])(u?int[1-8]|b?float16|float8|bf16|fp16)(?!\d)")
_BLANK = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT),
    *(tokenize.ENCODING, tokenize.ENDMARKER),
}
_OPEN = "dict[str, Any]"


def code_lines(text: str) -> int:
    """Lines with a token that is neither comment nor docstring."""
    return len({line for token in _code(text) for line in range(token.start[0], token.end[0] + 1)})


def docstring_lines(text: str) -> int:
    """Lines of statements that are a string alone, blank ones within it included."""
    strings = (
        node.value
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    )
    return sum(
        (node.end_lineno or node.lineno) - node.lineno + 1
        for node in strings
        if isinstance(node.value, str)
    )


def _code(text: str) -> Iterator[tokenize.TokenInfo]:
    """The tokens of all statements but those of a string alone: docstrings of whatever kind."""
    statement: list[tokenize.TokenInfo] = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _BLANK:
            statement.append(token)
        elif token.type == tokenize.NEWLINE:
            if any(part.type != tokenize.STRING for part in statement):
                yield from statement
            statement = []


def late_imports(text: str) -> int:
    """Statements that import something of ours after a module has started, or for types alone."""
    if is_door(text):  # whose purpose they are
        return 0
    ours = (item for item in imports_in(text) if item.name.startswith("chameleon_"))
    return len({item.line for item in ours if item.late})


def names_a_reduced_type(text: str) -> bool:
    """Whether the code itself, in a name or a text, names a dtype below 32 bits."""
    # Few modules do, and tokens take long.
    return bool(_REDUCED.search(text)) and any(_REDUCED.search(t.string) for t in _code(text))


def with_one_importer(graph: Graph) -> int:
    """Modules that exactly one other imports."""
    importers = Counter(target for targets in graph.values() for target in targets)
    return sum(importers[name] == 1 for name in graph)


def figures() -> dict[str, int]:
    """Every figure of the table, counted in the files of this repository."""
    packages = {
        folder.name: modules_of(folder) for folder in ROOT.glob("packages/*/src/chameleon_*")
    }
    modules = {name: file for package in packages.values() for name, file in package.items()}
    texts = {name: file.read_text() for name, file in modules.items()}
    lines = {name: code_lines(text) for name, text in texts.items()}
    graph = graph_of(modules)
    circles = [circle for package in packages.values() for circle in circles_in(graph_of(package))]
    rooms = [
        circle
        for package in packages.values()
        for circle in circles_in(folders_of(graph_of(package)))
    ]
    tests = [code_lines(file.read_text()) for file in (ROOT / "tests").rglob("*.py")]
    networks = [text for name, text in texts.items() if name.startswith(NETWORKS)]
    return {
        "code lines": sum(lines.values()),
        "docstring lines per 100 code lines": (
            100 * sum(map(docstring_lines, texts.values())) // sum(lines.values())
        ),
        **{
            f"code lines of {package}": sum(lines[name] for name in packages[package])
            for package in ("chameleon_core", *BOTH_HALVES, "chameleon_testing")
        },
        "code lines of tests": sum(tests),
        "modules": len(modules),
        "modules with one importer": with_one_importer(graph),
        f"{_OPEN} in networks": sum(text.count(_OPEN) for text in networks),
        "late imports": sum(map(late_imports, texts.values())),
        "files in circles": sum(map(len, circles)),
        "folders in circles": sum(map(len, rooms)),
        "modules reached from a network importer": len(reached_from(IMPORTER, graph)),
        "modules that name a reduced type": sum(map(names_a_reduced_type, texts.values())),
    }


def main() -> int:
    """Print the table; 1 if a figure has grown."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--update", action="store_true", help="write lower figures to the table")
    update = parser.parse_args().update
    counted = figures()
    known = tomllib.loads(TABLE.read_text()) if TABLE.exists() else {}
    limits = known.get("limits", {})
    bars = known.get("bars", {})
    width = max(map(len, counted))
    print(f"{'':{width}} {'now':>7} {'limit':>7} {'bar':>7}")
    for name, count in counted.items():
        print(f"{name:{width}} {count:7} {limits.get(name, ''):>7} {bars.get(name, ''):>7}")
    grown = [name for name, count in counted.items() if count > limits.get(name, count)]
    for name in grown:
        print(f"{name}: {counted[name]} is more than {limits[name]}", file=sys.stderr)
    if update:
        lowest = {name: min(count, limits.get(name, count)) for name, count in counted.items()}
        _write(lowest, bars)
    return 1 if grown else 0


def _write(limits: dict[str, int], bars: dict[str, int]) -> None:
    tables = {"limits": limits, "bars": bars}
    parts = [
        "\n".join([f"[{title}]", *(f'"{name}" = {count}' for name, count in table.items())])
        for title, table in tables.items()
    ]
    comment = f"# Read and written by {Path(__file__).name}; a limit grows with a reason only."
    TABLE.write_text("\n\n".join([comment, *parts]) + "\n")


if __name__ == "__main__":
    sys.exit(main())
