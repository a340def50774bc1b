"""Torch and TVM compute the same of every transform and of compositions."""

import pytest
from chameleon_transforms._nest.program import single_nest
from chameleon_transforms.hooks import TRANSFORMS
from chameleon_transforms.testing import disagreement
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

# Of an odd and an even extent, strided, dilated or neither; groups and parts divide the channels.
CONVOLUTIONS = {
    "3x3": single_nest(16, 16, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), size=(8, 7), bias=True),
    "strided": single_nest(8, 32, (3, 3), (2, 2), (1, 1, 1, 1), (1, 1), size=(8, 8)),
    "dilated 5x5": single_nest(16, 8, (5, 5), (1, 1), (4, 4, 4, 4), (2, 2), size=(8, 8)),
    "pointwise": single_nest(32, 16, (1, 1), (1, 1), (0, 0, 0, 0), (1, 1), size=(4, 4)),
    "uneven padding": single_nest(16, 16, (2, 3), (1, 1), (0, 2, 1, 0), (1, 1), size=(8, 6)),
}


def composed(program, transforms, choices):
    """A program after transforms; those that are illegal for it change nothing."""
    for name, index in choices:
        result = list(transforms[name].variants(program))
        if result:
            _, program = result[index % len(result)]
    return program


def check(program):
    result = disagreement(program, batch=2)
    assert result["error"] <= result["tolerance"]


@pytest.mark.full
@pytest.mark.parametrize("name", [record.name for record in TRANSFORMS])
def test_a_transform_agrees(name, transforms):
    program = CONVOLUTIONS["3x3"]
    result = dict(transforms[name].variants(program))
    assert result, "it is legal for this one"
    for after in result.values():
        assert after != program
        assert after.stages[0].input == program.stages[0].input
        assert after.stages[-1].output == program.stages[-1].output
    check(list(result.values())[-1])


CHOICES = st.lists(
    st.tuples(st.sampled_from([record.name for record in TRANSFORMS]), st.integers(0, 7)),
    min_size=1,
    max_size=4,
)


@given(st.sampled_from(sorted(CONVOLUTIONS)), CHOICES)
@settings(max_examples=5, derandomize=True, suppress_health_check=list(HealthCheck))
def test_compositions_agree(transforms, name, choices):
    program = composed(CONVOLUTIONS[name], transforms, choices)
    assume(program != CONVOLUTIONS[name])
    check(program)


@pytest.mark.long
@given(st.sampled_from(sorted(CONVOLUTIONS)), CHOICES)
@settings(max_examples=100, suppress_health_check=list(HealthCheck))
def test_a_hundred_compositions_agree(transforms, name, choices):
    test_compositions_agree.hypothesis.inner_test(transforms, name, choices)
