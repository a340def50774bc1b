"""Which bindings of a graph read the arrays that attention's operands are rearranged from."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from chameleon_networks.graph.relaxed import relax
from chameleon_networks.graph.strided import step_of


def readers_of(
    inputs: Sequence[Any],
    members: Collection[Any],
    products: tuple[Any, Any],
    values: Mapping[Any, Any],
    users: Mapping[Any, Sequence[Any]],
) -> tuple[tuple[Any, ...], ...] | None:
    """For each input those that read it; None where others read what is between it and a product.

    Args:
        inputs: the arrays that queries, keys and values are views of.
        members: what the kernel replaces.
        products: of queries and keys, and of powers and values.
        values: what variables are bound to.
        users: the bindings that read a variable; None stands for the function's result.
    """
    found: list[dict[Any, None]] = [{} for _ in inputs]
    between: set[Any] = set()
    scores, mixed = products
    operands = [*((one, scores) for one in values[scores].args), (values[mixed].args[1], mixed)]
    for operand, product in operands:
        current, reader = operand, product
        while (place := _place_of(current, inputs)) is None:
            value = values.get(current)
            step = step_of(value, values)
            if step is None:
                return None
            reader = value.tuple_value if isinstance(value, relax.TupleGetItem) else current
            between.update((current, reader))
            current = step[0]
        found[place][reader] = None
    ours = between.union(members)
    read = [user for one in between for user in users[one]]
    if any(user is None or user.var not in ours for user in read):
        return None
    return tuple(tuple(one) for one in found)


def _place_of(tensor: Any, inputs: Sequence[Any]) -> int | None:
    return next((place for place, one in enumerate(inputs) if one.same_as(tensor)), None)
