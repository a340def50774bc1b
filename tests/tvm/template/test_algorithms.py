"""A template joins the design spaces of any number of algorithms."""

import numpy as np
import pytest
from chameleon_core.plugin_api import Choice, Constraint, DesignSpace
from chameleon_tvm import _emit as emit
from chameleon_tvm._spaces.loops.trees import structural_equal
from chameleon_tvm._spaces.template.algorithms import (
    ALGORITHM,
    Algorithm,
    MultiAlgorithmTemplate,
    join_spaces,
)


class Toy(Algorithm):
    """Knobs of its own, and a cost that is one of their values."""

    def __init__(self, prefix, names=None, *, options=(1, 2, 3), preferred=True):
        self.prefix, self.options, self.preferred = prefix, options, preferred
        self.names = names or (prefix,)

    def space(self):
        knob, other = f"{self.prefix}_size", f"{self.prefix}_order"
        several = len(self.names) > 1
        knobs = [Choice(name=knob, options=self.options), Choice(name=other, options=("a", "b"))]
        if several:
            knobs.insert(0, Choice(name=ALGORITHM, options=self.names))
        guesses = np.zeros((2, len(knobs)), np.int32)
        guesses[1, -1] = 1
        return DesignSpace(
            knobs,
            constraints=[
                Constraint(reason="too large", holds=lambda v: (v[knob] < 3) | (v[other] == "a"))
            ],
            features=DesignSpace.FeatureBlock(
                names=(f"{self.prefix}_feature",),
                compute=lambda v: np.asarray(v[knob], np.float64)[:, None],
                groups=((self.prefix, (f"{self.prefix}_feature",)),),
            ),
            guessed_cost=lambda v: np.asarray(v[knob], np.float64),
            first_guesses=guesses,
        )

    def function(self, values):
        out = emit.buffer("out", (1, 1))
        return emit.function([out], emit.store(out, [0, 0], float(values[f"{self.prefix}_size"])))

    def pack(self, values, constants):
        return [self.prefix, *constants]


DIRECT = Toy("direct", preferred=False)
WINOGRAD = Toy("winograd", ("winograd2", "winograd4"), options=(2, 3))
SPLIT = Toy("split", options=(1, 3))
ALL = (DIRECT, WINOGRAD, SPLIT)


def test_legal_configurations_are_those_of_the_parts():
    space = join_spaces(ALL)
    rows = space.all_legal
    parts = [part.space() for part in ALL]
    legal = rows[space.legal(rows)]
    assert len(legal) == sum(int(part.legal(part.all_legal).sum()) for part in parts)
    assert len(np.unique(legal, axis=0)) == len(legal)
    for row in legal:
        decoded = space.decode(row.tolist())
        (algorithm,) = (part for part in ALL if decoded[ALGORITHM] in part.names)
        others = [f"{part.prefix}_size" for part in ALL if part is not algorithm]
        assert all(row[space.index[name]] == 0 for name in others)


def test_every_name_is_a_choice():
    space = join_spaces(ALL)
    assert tuple(space.knobs[0].values) == ("direct", "winograd2", "winograd4", "split")
    chosen = {space.decode(row.tolist())[ALGORITHM] for row in space.all_legal}
    assert chosen == {"direct", "winograd2", "winograd4", "split"}


def test_features_of_other_algorithms_are_zero():
    space = join_spaces(ALL)
    rows = space.all_legal[space.legal(space.all_legal)]
    features = space.features_block.compute(space.values(rows))
    assert features.shape == (len(rows), len(ALL))
    names = space.values(rows)[ALGORITHM]
    for column, algorithm in enumerate(ALL):
        mine = np.isin(names, algorithm.names)
        sizes = space.values(rows)[f"{algorithm.prefix}_size"]
        assert np.array_equal(features[:, column], np.where(mine, sizes, 0.0))
    costs = space.guessed_cost(space.values(rows))
    assert np.array_equal(costs, features.sum(axis=1))


@pytest.mark.parametrize(
    ("algorithms", "likeliest"),
    [
        (ALL, "split"),  # both lead, and its guess is the cheaper one
        ((DIRECT, WINOGRAD), "winograd2"),
        ((DIRECT, Toy("planar", preferred=False, options=(2, 3))), "direct"),
        ((DIRECT, Toy("planar", preferred=False)), "planar"),  # at the same cost
    ],
)
def test_the_first_guess_is_of_the_likeliest_algorithm(algorithms, likeliest):
    space = join_spaces(algorithms)
    guesses = [space.decode(row.tolist())[ALGORITHM] for row in space.first_guesses]
    assert guesses[0] == likeliest
    assert space.legal(space.first_guesses).all()
    # Every algorithm is measured early.
    assert {name for part in algorithms for name in part.names[:1]} == set(guesses[:4])


def test_one_algorithm_has_its_own_space():
    space = join_spaces((DIRECT,))
    assert [knob.name for knob in space.knobs] == ["direct_size", "direct_order"]


def test_a_template_calls_the_chosen_algorithm():
    class Template(MultiAlgorithmTemplate):
        def __init__(self):
            self.algorithms, self.shapes = ALL, {"out": (1,)}

    template = Template()
    for row in template.design_space.all_legal:
        values = template.design_space.decode(row.tolist())
        (part,) = (part for part in ALL if values[ALGORITHM] in part.names)
        expected = emit.with_shapes(part.function(values), template.shapes)
        assert structural_equal(template.function(values), expected)
        assert template.pack(values, ["weights"]) == [part.prefix, "weights"]
    assert template.tolerance == 0.0
