"""Seconds of convolutions in every pair of layouts, and of moves between layouts.

The kernels of one convolution are timed in turns and only the least of many short repeats counts:
what disturbs them disturbs all alike, and never makes one faster. Seconds are kept in a file, to
which every call adds repeats, so that a second one at another time measures everything again.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

import attrs
import numpy as np
from chameleon_core.stages import Kernel, SpaceProvider
from chameleon_tvm.building.kernel import Program, TVMKernel
from chameleon_tvm.device.targets import target_info
from chameleon_tvm.operators.convolution import to_layout
from chameleon_tvm.operators.layouts import channel_block, physical_shape, with_rank
from chameleon_tvm.operators.specs import ConvolutionSpec
from chameleon_tvm.quick_tvm import te
from chameleon_tvm.spaces.loops.lowered import loops_of
from chameleon_tvm.spaces.loops.schedule import default_plan, scheduled
from layout_graph import Move, fits

REPEAT_SECONDS = 5e-4
"""A repeat averages over as many runs as fill this."""
HOPELESS = 1.5
"""Kernels so many times slower than the fastest of their convolution get the first rounds only."""
FIRST_ROUNDS = 4


@attrs.frozen(kw_only=True, eq=False)
class Clock:
    """Measures what is not known yet, or everything once more.

    Attributes:
        target: the resolved target.
        space: whose first guesses stand for what tuning would find.
        layouts: to read and to write.
        guesses: first guesses of each pair.
        rounds: turns of every kernel that is not hopeless.
        file: where seconds are kept, or None.
        again: whether what is known gets more repeats.
    """

    target: str
    space: SpaceProvider
    layouts: Sequence[str]
    guesses: int
    rounds: int
    file: Path | None = None
    again: bool = False
    known: dict[str, float] = attrs.field(factory=dict)

    def __attrs_post_init__(self) -> None:
        if self.file is not None and self.file.exists():
            self.known.update(json.loads(self.file.read_text(encoding="utf-8")))

    def convolution(self, spec: ConvolutionSpec) -> dict[tuple[str, str], float]:
        """Least seconds by the layouts that a convolution reads and writes."""
        keys = {
            (read, written): f"{spec.kind} {json.dumps(spec.arguments())} {read} {written}"
            for read in self.layouts
            for written in self.layouts
            if fits(read, spec.input[1]) and fits(written, spec.output_channels)
        }
        if self.again or any(key not in self.known for key in keys.values()):
            kernels = [
                (key, kernel) for pair, key in keys.items() for kernel in self._kernels(spec, *pair)
            ]
            self._note(kernels)
            for key in keys.values():
                self.known.setdefault(key, math.inf)
        found = {pair: self.known[key] for pair, key in keys.items()}
        return {pair: seconds for pair, seconds in found.items() if math.isfinite(seconds)}

    def move(self, move: Move) -> float:
        """Least seconds of a move between layouts."""
        key = f"move {move}"
        if self.again or key not in self.known:
            self._note([(key, _move_kernel(move, self.target))])
        return self.known[key]

    def save(self) -> None:
        """Keep what is known."""
        if self.file is not None:
            self.file.write_text(json.dumps(self.known, indent=0), encoding="utf-8")

    def _kernels(self, spec: ConvolutionSpec, read: str, written: str) -> list[Kernel]:
        rank = spec.rank
        made = attrs.evolve(
            spec, layout=with_rank(read, rank), output_layout=with_rank(written, rank)
        )
        task = made.task("convolution", self.target)
        configs = self.space.design_space(task).first_guesses[: self.guesses]
        builder = self.space.builder(task, threads=1)
        return [builder.build(tuple(int(index) for index in config)) for config in configs]

    def _note(self, kernels: Sequence[tuple[str, Kernel]]) -> None:
        for key, seconds in least_seconds(kernels, self.rounds).items():
            self.known[key] = min(seconds, self.known.get(key, math.inf))


def least_seconds(kernels: Sequence[tuple[str, Kernel]], rounds: int) -> dict[str, float]:
    """Least seconds of kernels that are timed in turns, of those of one name together.

    Args:
        kernels: each with its name.
        rounds: turns of each; hopeless ones have fewer.
    """
    best = [math.inf] * len(kernels)
    runs = []
    for _, kernel in kernels:
        kernel.time(1)
        probe = min(kernel.time(1) for _ in range(2))
        runs.append(max(1, math.ceil(REPEAT_SECONDS / max(probe, 1e-9))))
    for turn in range(rounds):
        limit = HOPELESS * min(best, default=math.inf)
        for place, (_, kernel) in enumerate(kernels):
            if turn < FIRST_ROUNDS or best[place] <= limit:
                best[place] = min(best[place], kernel.time(runs[place]))
    found: dict[str, float] = {}
    for (name, _), seconds in zip(kernels, best, strict=True):
        found[name] = min(seconds, found.get(name, math.inf))
    return found


def _move_kernel(move: Move, target: str) -> Kernel:
    """A move with the schedule that it would have in a delivered network."""
    shape, before, after = move
    rank = len(shape) - 2
    before, after = with_rank(before, rank), with_rank(after, rank)
    data = te.placeholder(physical_shape(shape, before), "float32", name="data")
    out = te.compute(
        physical_shape(shape, after),
        lambda *at: data(*_index(before, *_place(after, at))),
        name="moved",
    )
    function = te.create_prim_func([data, out])
    lanes = target_info(target).lanes("float32")
    image = np.zeros(shape, np.float32)
    program = Program(
        function=loops_of(scheduled(function, default_plan(function), lanes)),
        inputs=[to_layout(image, before)],
        plain_loops=True,
    )
    return TVMKernel(program, target)


def _place(layout: str, at: Sequence[object]) -> tuple[object, object, list[object]]:
    """Sample, channel and place in space of a physical index."""
    block = channel_block(layout)
    if layout.endswith("C"):
        return at[0], at[-1], list(at[1:-1])
    if block:
        return at[0], at[1] * block + at[-1], list(at[2:-1])  # type: ignore[operator]
    return at[0], at[1], list(at[2:])


def _index(layout: str, n: object, c: object, space: Sequence[object]) -> tuple[object, ...]:
    """The physical index of a sample, channel and place in space."""
    block = channel_block(layout)
    if layout.endswith("C"):
        return n, *space, c
    if block:
        return n, c // block, *space, c % block  # type: ignore[operator]
    return n, c, *space
