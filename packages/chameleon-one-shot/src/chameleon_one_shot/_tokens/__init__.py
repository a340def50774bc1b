"""Describes configurations of a task on a device as tokens with named numbers."""

from chameleon_one_shot._tokens.configuration import (
    FixedToken,
    TaskTokens,
    recorded_tokens,
    task_tokens,
)
from chameleon_one_shot._tokens.numbers import named_numbers, sizes
from chameleon_one_shot._tokens.vocabulary import Vocabulary

__all__ = [
    "FixedToken",
    "TaskTokens",
    "Vocabulary",
    "named_numbers",
    "recorded_tokens",
    "sizes",
    "task_tokens",
]
