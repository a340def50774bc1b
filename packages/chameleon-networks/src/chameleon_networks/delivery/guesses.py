"""Kernels that nobody checked here: replaced until the network that has them is right.

What the budget did not reach is delivered with what its space recommends. Such a kernel was never
built or checked alone, so that the network's own verification is the first to see it. Where that
fails, the guess to blame makes room for the next one, and at last for the default schedule: an
operator that nobody tuned must not cost the network that is built around it. So it is with a kernel
that another run has measured, whose record says so, and nobody knows who wrote that.
"""

from __future__ import annotations

from pathlib import Path

import structlog

from chameleon_networks.delivery.delivery_steps import DeliverySteps
from chameleon_networks.running.verify import OutputCheck, guilty

log = structlog.get_logger()

TURNS = 3
"""Guesses that are found to blame and replaced one by one; after that all are given up, since to
find the next one means to compile the network several times."""


def mended(
    steps: DeliverySteps, staged: Path | None, verdict: OutputCheck
) -> tuple[Path | None, OutputCheck]:
    """Replace guesses that are to blame until the network is right, or none is to blame.

    Args:
        steps: the delivery; it gets other kernels.
        staged: the compiled network, or None where it could not be compiled.
        verdict: on it.

    Returns:
        The network that was compiled last and the verdict on it.
    """
    for turn in range(TURNS + 1):
        guesses = [key for key, winner in steps.kernels.winners.items() if not winner.checked]
        if verdict.problem is None or not guesses:
            break
        blamed = guesses if turn == TURNS else _blamed(steps, guesses)
        if not blamed:
            break
        for key in blamed:
            winner = steps.kernels.winners[key]
            event = "record_replaced" if winner.recorded else "guess_replaced"
            log.warning(event, task=winner.task.name, problem=verdict.problem)
            before = "record of another run" if winner.recorded else "guess before"
            steps.replaced[key] = f"with the {before}, {verdict.problem}"
        steps.kernels = steps.kernels.with_next_guesses(blamed, give_up=turn == TURNS)
        staged, verdict = steps.tried(steps.kernels, f"mended-{turn}")
    return staged, verdict


def _blamed(steps: DeliverySteps, guesses: list[str]) -> list[str]:
    """The guesses with which the network fails; none where it fails without any of them."""

    def fails(keys: frozenset[str]) -> bool:
        others = frozenset(guesses) - keys
        _, verdict = steps.tried(steps.kernels.without(others), "suspects")
        return verdict.problem is not None

    return guilty(guesses, fails)
