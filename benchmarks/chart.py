"""Draws README's chart from the corpus's recorded table: each held-out network beside its rivals.

    python benchmarks/chart.py benchmarks/JOURNAL.md docs/images/networks.svg

The table is the one that ``benchmarks/corpus.py --report`` writes. The file follows the reader's
light or dark mode.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterable
from html import escape
from pathlib import Path

import attrs

RIVALS = ("torch.compile", "onnxruntime", "openvino")
HELD_OUT = " *"
WIDTH, LEFT, RIGHT, TOP, ROW = 760, 170, 50, 74, 20

STYLE = """
text { font: 12px system-ui, sans-serif; fill: #1f2328 }
.title { font-size: 15px; font-weight: 600 }
.note { fill: #59636e } .ours { fill: #2f6fdb } .rival { fill: #8c959f } line { stroke: #59636e }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc } .note { fill: #9198a1 } .ours { fill: #6ea8fe } .rival { fill: #6e7681 }
  line { stroke: #9198a1 }
}
"""


@attrs.frozen(kw_only=True)
class Row:
    """A network's time and those of its rivals, in milliseconds.

    Attributes:
        name: the network's.
        ours: Chameleon's.
        rivals: by name; those that run it.
        ratio: how many times as fast as its fastest rival.
    """

    name: str
    ours: float
    rivals: dict[str, float]
    ratio: float


def rows_of(page: str) -> list[Row]:
    """The held-out networks in the corpus's table, the largest ratio first."""
    lines = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| ")]
    header = next(cells for cells in lines if cells[0] == "network" and "ratio" in cells)
    named = (dict(zip(header, cells, strict=False)) for cells in lines)
    rows = [
        Row(
            name=cells["network"].removesuffix(HELD_OUT),
            ours=float(cells["ms"]),
            rivals={name: float(cells[name]) for name in RIVALS if cells[name] != "-"},
            ratio=float(cells["ratio"]),
        )
        for cells in named
        if cells["network"].endswith(HELD_OUT)
    ]
    return sorted(rows, key=lambda row: -row.ratio)


def drawing(rows: list[Row]) -> str:
    """The chart as SVG: a bar for each network, whose fastest rival is the line at 1."""
    scale = (WIDTH - LEFT - RIGHT) / max(row.ratio for row in rows)
    height = TOP + ROW * len(rows) + 12
    mean = statistics.geometric_mean(row.ratio for row in rows)
    title = f"{len(rows)} held-out networks: {mean:.2f} times as fast as the best alternative"
    rivals = "torch, torch.compile, onnxruntime and OpenVINO"
    note = f"Speed relative to the fastest of {rivals} (dashed line)"
    line = f'x1="{LEFT + scale:.1f}" x2="{LEFT + scale:.1f}" y1="{TOP - 8}" y2="{height - 8}"'
    parts: Iterable[str] = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
        f"<title>{title}</title><style>{STYLE}</style>",
        f'<text class="title" x="12" y="24">{title}</text>',
        f'<text class="note" x="12" y="44">{note}</text>',
        *(_bar(row, TOP + ROW * place, scale) for place, row in enumerate(rows)),
        f'<line {line} stroke-dasharray="4 3"/>',
        "</svg>",
    )
    return "\n".join(parts) + "\n"


def _bar(row: Row, top: int, scale: float) -> str:
    length = row.ratio * scale
    times = {"chameleon": row.ours, **row.rivals}
    tip = ", ".join(f"{name} {milliseconds:g} ms" for name, milliseconds in times.items())
    return (
        f'<g><title>{escape(tip)}</title><text x="{LEFT - 8}" y="{top + 13}" text-anchor="end">'
        f'{escape(row.name)}</text><rect class="{"ours" if row.ratio >= 1 else "rival"}" '
        f'x="{LEFT}" y="{top + 2}" width="{length:.1f}" height="{ROW - 6}" rx="2"/>'
        f'<text x="{LEFT + length + 6:.1f}" y="{top + 13}">{row.ratio:.2f}</text></g>'
    )


def main() -> None:
    """Write the chart."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("table", type=Path, help="a page with the corpus's table")
    parser.add_argument("output", type=Path, help="the SVG file")
    asked = parser.parse_args()
    asked.output.write_text(drawing(rows_of(asked.table.read_text())))


if __name__ == "__main__":
    main()
