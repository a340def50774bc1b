"""Draw the diagrams of ``docs/architecture.md`` as SVG, from the texts that stand there.

``python tools/diagrams.py`` writes ``docs/images/pipeline.svg``, ``candidate.svg`` and
``network.svg``. They follow the reader's light or dark mode. The texts of the two ways come from
``python tools/ways.py``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "architecture.md"
IMAGES = ROOT / "docs" / "images"

ROW, BOX, INDENT, LEFT = 30, 22, 22, 12
LETTER = 7.0
"""The width of a letter in pixels, about."""
STAGE, STAGE_WIDTH, ABOUT = 130, 110, 260
"""Left edge and width of the pipeline's boxes, and the left edge of their texts."""

STYLE = """
text { font: 12px system-ui, sans-serif; fill: #1f2328 } .note { fill: #59636e }
rect { fill: #ddf4ff; stroke: #2f6fdb } path { fill: none; stroke: #8c959f }
marker path { fill: #8c959f; stroke: none }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc } .note { fill: #9198a1 }
  rect { fill: #121d2f; stroke: #6ea8fe } path { stroke: #6e7681 } marker path { fill: #6e7681 }
}
"""
ARROW = (
    '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
    'orient="auto"><path d="M0 0 8 4 0 8z"/></marker></defs>'
)


def block_after(page: str, title: str) -> list[str]:
    """The lines of the first block of text below a heading."""
    section = page.partition(f"\n# {title}\n")[2] or page.partition(f"\n## {title}\n")[2]
    return section.partition("```text\n")[2].partition("```")[0].splitlines()


def tree(lines: Sequence[str], title: str) -> str:
    """Folders below those that called them first, each with the function called."""
    parts, parents, width = [], [0], 0.0
    for row, line in enumerate(lines):
        folder, function = line.split()
        depth = (len(line) - len(line.lstrip())) // 2
        left, middle = LEFT + INDENT * depth, LEFT + ROW * row + BOX // 2
        length = len(folder) * LETTER + 14
        if depth:
            corner = left - INDENT + 8
            start = LEFT + ROW * parents[depth - 1] + BOX
            parts.append(f'<path d="M{corner} {start}V{middle}H{left}"/>')
        parents[depth:] = [row]
        parts += [
            _box(left, middle, length, folder),
            _text(left + length + 10, middle, function, "note"),
        ]
        width = max(width, left + length + 10 + len(function) * LETTER)
    return _svg(parts, title, width + LEFT, len(lines))


def pipeline(lines: Sequence[str], title: str) -> str:
    """Stages from top to bottom; those of the loop have an arrow back to its first."""
    parts, loop, width = [ARROW], [], 0.0
    for row, line in enumerate(lines):
        phase, *cells = re.split(r"\s{2,}", line)
        stage = cells.pop(0) if len(cells) > 1 else ""
        about = " ".join(cells)
        middle = LEFT + ROW * row + BOX // 2
        if phase.endswith(":") or (loop and loop[-1] == row - 1 and not phase):
            loop.append(row)
        parts.append(_text(LEFT, middle, phase.removesuffix(":"), "note"))
        about = re.sub(r"\s*->\s*", " → ", about)
        if stage:
            parts += [_box(STAGE, middle, STAGE_WIDTH, stage), _text(ABOUT, middle, about)]
        else:
            parts.append(_box(STAGE, middle, len(about) * LETTER + 14, about))
        width = max(width, ABOUT + len(about) * LETTER)
        if row:
            down = f"M{STAGE + STAGE_WIDTH // 2} {middle - ROW + BOX // 2}v{ROW - BOX}"
            parts.append(f'<path d="{down}" marker-end="url(#arrow)"/>')
    first, last = (LEFT + ROW * row + BOX // 2 for row in (loop[0], loop[-1]))
    back = f"M{STAGE} {last}H{STAGE - 24}V{first}H{STAGE}"
    parts.append(f'<path d="{back}" marker-end="url(#arrow)"/>')
    return _svg(parts, title, width + LEFT, len(lines))


def _box(left: float, middle: float, width: float, words: str) -> str:
    top = middle - BOX // 2
    box = f'<rect x="{left}" y="{top}" width="{width:.0f}" height="{BOX}" rx="4"/>'
    return box + _text(left + 7, middle, words)


def _text(left: float, middle: float, words: str, kind: str = "") -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text x="{left:.0f}" y="{middle + 4}"{named}>{escape(words)}</text>' if words else ""


def _svg(parts: Sequence[str], title: str, width: float, rows: int) -> str:
    size = f"0 0 {width:.0f} {2 * LEFT + ROW * rows - ROW + BOX}"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{size}" role="img">'
    title = f"<title>{escape(title)}</title><style>{STYLE}</style>"
    return "\n".join([head, title, *filter(None, parts), "</svg>"]) + "\n"


DRAWN: dict[str, tuple[str, Callable[[Sequence[str], str], str]]] = {
    "pipeline.svg": ("Architecture", pipeline),
    "candidate.svg": ("A candidate's way", tree),
    "network.svg": ("A network's way", tree),
}
"""By file: the heading above the text, and how it is drawn."""


def drawings(page: str) -> dict[str, str]:
    """The content of each file."""
    texts = {name: block_after(f"\n{page}", title) for name, (title, _) in DRAWN.items()}
    return {name: draw(texts[name], title) for name, (title, draw) in DRAWN.items()}


def main() -> None:
    """Write the files."""
    for name, drawing in drawings(PAGE.read_text(encoding="utf-8")).items():
        (IMAGES / name).write_text(drawing, encoding="utf-8")


if __name__ == "__main__":
    main()
