"""Collects the operators of a network, and reports all that cannot be compiled in one message."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

import attrs
from chameleon_core.api import NetworkResult
from chameleon_core.plugin_api import ConfigError
from chameleon_tvm.api import WAY_OUT


@attrs.frozen(kw_only=True)
class UnsupportedNode:
    """A node of a network that cannot be compiled.

    Attributes:
        operator: The name of the node's operator.
        sentence: A phrase that names the node in messages.
        reason: The reason why the node cannot be compiled, without the node's name.
        hint: A way to solve the problem.
        inputs: The network's inputs whose values must be known for the node to be compiled.
    """

    operator: str
    sentence: str
    reason: str
    hint: str = WAY_OUT
    inputs: tuple[str, ...] = ()


class UnsupportedOperatorsError(ConfigError):
    """Some operators of a network cannot be compiled. The message lists all of them.

    Attributes:
        survey: All operators of the network.
        names: The network's inputs whose values must be known for the operators to be compiled.
    """

    def __init__(self, survey: OperatorSurvey) -> None:
        hints = dict.fromkeys(unsupported.hint for unsupported in survey.unsupported)
        message = "; ".join(
            f"{first.sentence}{_count_more(len(others))} cannot be compiled: {first.reason}"
            for first, *others in survey.grouped()
        )
        super().__init__(message, hint="\n".join(hints))
        self.survey = survey
        self.names = tuple(dict.fromkeys(name for one in survey.unsupported for name in one.inputs))


def _count_more(others: int) -> str:
    return f" (and {others} more of them)" if others else ""


@attrs.define
class OperatorSurvey:
    """Counts the operators of a network while it is imported.

    Attributes:
        operators: How often each operator occurs, by name.
        assumed: How often each operator reads tensors of unknown shape, by name. These occurrences
            are assumed to be supported, since only the name of the operator can be checked.
        unsupported: The nodes that cannot be compiled.
    """

    operators: Counter[str] = attrs.field(factory=Counter)
    assumed: Counter[str] = attrs.field(factory=Counter)
    unsupported: list[UnsupportedNode] = attrs.field(factory=list)

    def check(self) -> None:
        """Raise one error for all operators of the network that cannot be compiled, if any."""
        if self.unsupported:
            raise UnsupportedOperatorsError(self)

    def grouped(self) -> Iterator[Sequence[UnsupportedNode]]:
        """Group the nodes that cannot be compiled by operator and reason, for the message."""
        groups = defaultdict(list)
        for unsupported in self.unsupported:
            groups[unsupported.operator, unsupported.reason].append(unsupported)
        yield from groups.values()

    def coverage(self) -> list[NetworkResult.OperatorCoverage]:
        """The operators with their unsupported nodes, the most frequent operators first."""
        return [
            NetworkResult.OperatorCoverage(
                name=name,
                occurrences=count,
                assumed=self.assumed[name],
                missing={
                    f"{first.sentence}{_count_more(len(others))}: {first.reason}": first.hint
                    for first, *others in self.grouped()
                    if first.operator == name
                },
            )
            for name, count in self.operators.most_common()
        ]
