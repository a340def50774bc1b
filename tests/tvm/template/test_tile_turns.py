"""Products of a step of tiles, whose factors are loaded in turn into two registers."""

import pytest
from chameleon_tvm._spaces.template.tile_algorithm import PART_PRODUCTS
from chameleon_tvm._spaces.template.tile_blocks import PART_LOADS, turns_of_products

PARTS = [*PART_LOADS.values(), *PART_PRODUCTS.values()]


def pairs_of(parts):
    """The pairs of parts to multiply, without None."""
    weights = data = 0
    for new_weights, new_data in parts:
        weights = weights if new_weights is None else new_weights
        data = data if new_data is None else new_data
        yield weights, data


@pytest.mark.parametrize("rows", [1, 2, 3])
@pytest.mark.parametrize("columns", [1, 2, 3])
@pytest.mark.parametrize("parts", PARTS)
def test_each_sum_gets_the_products_of_its_parts_in_order(parts, rows, columns):
    products = {(row, column): [] for row in range(rows) for column in range(columns)}
    weights = data = None
    loads = 0
    for turn in turns_of_products(parts, rows, columns):
        if turn.weights is not None:
            weights = turn.weights, turn.column
        if turn.data is not None:
            data = turn.data, turn.row
        loads += (turn.weights is not None) + (turn.data is not None)
        assert weights[1] == turn.column
        assert data[1] == turn.row
        products[turn.row, turn.column].append((weights[0], data[0]))
    assert set(map(tuple, products.values())) == {tuple(pairs_of(parts))}
    count = rows * columns * len(parts)
    assert loads <= count + len(parts)
