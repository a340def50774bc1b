"""Whether numbers are too large for a type is told by the ends alone, as by all of them."""

import numpy as np
import pytest
from chameleon_networks._quantize.weights import overflows
from chameleon_tvm._types import STORAGE
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

NUMBERS = st.one_of(
    st.floats(width=32),
    st.sampled_from([65504.0, 65519.0, 65520.0, -65520.0, 3.3895314e38, 3.3961775e38]),
)


@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
@given(values=arrays(np.float32, st.integers(0, 6), elements=NUMBERS))
def test_numbers_are_too_large_where_one_of_them_becomes_infinite(kind, values):
    finite = values[np.isfinite(values)]
    rounded = STORAGE[kind].rounded(finite)
    assert overflows(values, STORAGE[kind]) == (not np.isfinite(rounded).all())
