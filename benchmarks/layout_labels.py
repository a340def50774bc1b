"""The labels of a graph with the least total cost, exactly: variable elimination over min and sum.

What is added up is a table for each few variables (Dechter, "Bucket elimination: a unifying
framework for reasoning", 1999). The graphs of networks are narrow, so that tables stay small.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import attrs
import numpy as np
from chameleon_core.errors import ChameleonError
from numpy.typing import NDArray

LARGEST_TABLE = 50_000_000
"""Numbers of one table; a graph that needs a larger one is too wide for this way."""


@attrs.frozen(kw_only=True, eq=False)
class Factor:
    """What a choice of labels for some variables costs.

    Attributes:
        variables: their names, each once.
        table: costs, with an axis for each variable; infinite where the labels do not go together.
    """

    variables: tuple[str, ...]
    table: NDArray[np.float64]


def least(sizes: Mapping[str, int], factors: Sequence[Factor]) -> tuple[float, dict[str, int]]:
    """The least sum of all factors, and labels that have it.

    Args:
        sizes: number of labels of each variable.
        factors: to add up.

    Raises:
        ChameleonError: the graph is too wide.
    """
    constant = sum(float(one.table) for one in factors if not one.variables)
    left = [one for one in factors if one.variables]
    beside: dict[str, set[str]] = defaultdict(set)
    for one in left:
        for variable in one.variables:
            beside[variable].update(one.variables)
    open_variables = dict.fromkeys(sizes)
    decided: list[tuple[str, tuple[str, ...], NDArray[np.intp]]] = []
    while open_variables:
        variable = min(open_variables, key=lambda one: len(beside[one]))
        del open_variables[variable]
        scope = tuple(sorted(beside[variable] - {variable}))
        shape = [sizes[one] for one in (*scope, variable)]
        if np.prod(shape, dtype=np.float64) > LARGEST_TABLE:
            raise ChameleonError(
                f"{len(scope)} variables depend on one another at once",
                hint="Choose a network with fewer branches, or fewer labels.",
            )
        total = np.zeros(shape)
        for one in left:
            if variable in one.variables:
                total = total + _aligned(one, (*scope, variable))
        left = [one for one in left if variable not in one.variables]
        decided.append((variable, scope, total.argmin(axis=-1)))
        smaller = total.min(axis=-1)
        if scope:
            left.append(Factor(variables=scope, table=smaller))
        else:
            constant += float(smaller)
        for other in scope:
            beside[other].update(scope)
            beside[other].discard(variable)
    labels: dict[str, int] = {}
    for variable, scope, best in reversed(decided):
        labels[variable] = int(best[tuple(labels[one] for one in scope)])
    return constant, labels


def _aligned(factor: Factor, scope: Sequence[str]) -> NDArray[np.float64]:
    """A factor's table with the axes of a scope; those of other variables have an extent of 1."""
    order = sorted(range(len(factor.variables)), key=lambda at: scope.index(factor.variables[at]))
    table = factor.table.transpose(order)
    extents = iter(table.shape)
    return table.reshape([next(extents) if one in factor.variables else 1 for one in scope])
