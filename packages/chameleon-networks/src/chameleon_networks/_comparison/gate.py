"""Judges whether one network is slower than another, by turns in pairs of new processes.

Two processes of equal networks differ by some percent for as long as they live, since their memory
lies elsewhere. So a pair of processes gives a single ratio, and the gate starts new pairs until its
interval for the ratios excludes one of the answers.
"""

from __future__ import annotations

import contextlib
import math
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import attrs
from chameleon_bench.api import shift_interval
from chameleon_core.plugin_api import Arrays, ExitCode

from chameleon_networks._evaluation.processes import NetworkProcess

CONFIDENCE = 0.999
"""Confidence of the interval each time that it is looked at, about ten times in three minutes."""

SECONDS = 180.0
"""When the gate gives up."""

_TURNS, _TURN_SECONDS = 12, 0.05
"""Turns of each process, and the least duration of one. In short turns, neighbours disturb both
processes alike."""

_FIRST_LOOK, _NEXT_LOOK = 11, 1.25
"""Pairs before the first look: fewer have no interval of this confidence. Factor to the next look,
so that looking often does not make a wrong answer likely."""


@attrs.frozen(kw_only=True)
class Gate:
    """The answer whether a network is slower than another one by more than a margin.

    Attributes:
        ratio: The network's time over the other one's; above 1, the network is slower.
        low: The lower end of the interval of the ratio; 0 if it is unknown.
        high: The upper end of the interval; infinity if it is unknown.
        margin: The share of time by which the network may be slower.
        pairs: Number of pairs of processes.
    """

    ratio: float
    low: float
    high: float
    margin: float
    pairs: int

    @classmethod
    def of(cls, logarithms: Sequence[float], margin: float) -> Gate:
        """The answer from the logarithm of the ratio of each pair."""
        ratio, low, high = map(math.exp, shift_interval(logarithms, CONFIDENCE))
        return cls(ratio=ratio, low=low, high=high, margin=margin, pairs=len(logarithms))

    @property
    def verdict(self) -> str:
        """``slower``, ``not slower`` or ``undecided``."""
        if self.low > 1.0 + self.margin:
            return "slower"
        return "not slower" if self.high < 1.0 + self.margin else "undecided"

    @property
    def exit_code(self) -> ExitCode:
        """The exit code of a command that ends with this answer."""
        codes = {"slower": ExitCode.THRESHOLD_MISSED, "not slower": ExitCode.OK}
        return codes.get(self.verdict, ExitCode.UNDECIDED)

    def to_json(self) -> dict[str, Any]:
        """The attributes and the verdict as JSON values; null for an end that is unknown."""
        ends = {name: value if 0.0 < value < math.inf else None for name, value in self._ends}
        return {**attrs.asdict(self), **ends, "confidence": CONFIDENCE, "verdict": self.verdict}

    @property
    def _ends(self) -> tuple[tuple[str, float], tuple[str, float]]:
        return ("low", self.low), ("high", self.high)

    def __str__(self) -> str:
        ends = f" ({self.low:.3f} to {self.high:.3f})" if self.low else ""
        return (
            f"{self.verdict}: {self.ratio:.3f} times the time{ends}, "
            f"{self.margin:.1%} are allowed, {self.pairs} pairs of processes"
        )


def judge(
    opened: Callable[[], tuple[NetworkProcess, NetworkProcess]],
    inputs: Arrays,
    *,
    margin: float,
    seconds: float = SECONDS,
) -> Gate:
    """Time a network and another one in pairs of processes until the answer is sure.

    Args:
        opened: A function that starts a process with the network, and one with the other network.
        inputs: The inputs of an inference.
        margin: The share of time by which the network may be slower.
        seconds: When to give up.

    Raises:
        ChameleonError: One of the networks fails.
    """
    end = time.monotonic() + seconds
    logarithms: list[float] = []
    look = _FIRST_LOOK
    while True:
        logarithms.append(_logarithm(opened, inputs, reverse=len(logarithms) % 2 == 1))
        late = time.monotonic() > end
        if late or len(logarithms) >= look:
            gate = Gate.of(logarithms, margin)
            if late or gate.verdict != "undecided":
                return gate
            look = math.ceil(_NEXT_LOOK * look)


def _logarithm(
    opened: Callable[[], tuple[NetworkProcess, NetworkProcess]],
    inputs: Arrays,
    *,
    reverse: bool,
) -> float:
    """The logarithm of the ratio of the times of a pair of processes, from their turns."""
    with contextlib.ExitStack() as stack:
        pair = [stack.enter_context(process) for process in opened()]
        order = [1, 0] if reverse else [0, 1]
        logarithms = []
        for process in pair:
            process.pause()
        for _ in range(_TURNS):
            seconds = [0.0, 0.0]
            for index in order:
                turn = pair[index].seconds(inputs, about=_TURN_SECONDS)
                pair[index].pause()
                seconds[index] = statistics.median(turn)
            logarithms.append(math.log(seconds[0] / seconds[1]))
            order.reverse()
    return statistics.median(logarithms)
