"""Operators that a network has, and all that cannot be compiled among them, told at once."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

import attrs
from chameleon_core.errors import ConfigError
from chameleon_core.network_result import OperatorCoverage
from chameleon_tvm.words import WAY_OUT


@attrs.frozen(kw_only=True)
class Refusal:
    """A node that cannot be compiled.

    Attributes:
        operator: its name.
        sentence: the node, as messages call it.
        reason: why, without the node.
        hint: what would do.
        inputs: the network's inputs whose values it needs beforehand.
    """

    operator: str
    sentence: str
    reason: str
    hint: str = WAY_OUT
    inputs: tuple[str, ...] = ()


class OperatorsRefusedError(ConfigError):
    """Operators of a network cannot be compiled; the message has all of them.

    Attributes:
        survey: of the whole network.
        names: inputs of the network whose values operators need before it is compiled.
    """

    def __init__(self, survey: OperatorSurvey) -> None:
        hints = dict.fromkeys(refusal.hint for refusal in survey.refusals)
        message = "; ".join(
            f"{first.sentence}{_more(len(others))} cannot be compiled: {first.reason}"
            for first, *others in survey.alike()
        )
        super().__init__(message, hint="\n".join(hints))
        self.survey = survey
        self.names = tuple(dict.fromkeys(name for one in survey.refusals for name in one.inputs))


def _more(others: int) -> str:
    return f" (and {others} more of them)" if others else ""


@attrs.define
class OperatorSurvey:
    """Notes the operators of a network while it is imported.

    Attributes:
        operators: how often each occurs.
        assumed: how often each reads numbers of unknown shape, so that nothing but its name is
            known to be supported.
        refusals: nodes that cannot be compiled.
    """

    operators: Counter[str] = attrs.field(factory=Counter)
    assumed: Counter[str] = attrs.field(factory=Counter)
    refusals: list[Refusal] = attrs.field(factory=list)

    def check(self) -> None:
        """Refuse the network if it has operators that cannot be compiled.

        Raises:
            OperatorsRefusedError: there are some.
        """
        if self.refusals:
            raise OperatorsRefusedError(self)

    def alike(self) -> Iterator[Sequence[Refusal]]:
        """The refusals of each operator for each reason."""
        groups = defaultdict(list)
        for refusal in self.refusals:
            groups[refusal.operator, refusal.reason].append(refusal)
        yield from groups.values()

    def coverage(self) -> list[OperatorCoverage]:
        """The operators, the most frequent ones first."""
        return [
            OperatorCoverage(
                name=name,
                occurrences=count,
                assumed=self.assumed[name],
                missing={
                    f"{first.sentence}{_more(len(others))}: {first.reason}": first.hint
                    for first, *others in self.alike()
                    if first.operator == name
                },
            )
            for name, count in self.operators.most_common()
        ]
