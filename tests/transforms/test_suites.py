"""The suites of transforms and network scores find what is wrong, and pass our own."""

import attrs
import pytest
from chameleon_testing.suites.base import outcomes
from chameleon_transforms import hooks
from chameleon_transforms._contract import NetworkScore, Transform
from chameleon_transforms.testing import NetworkScoreSuite, TransformSuite
from synthetic import record_of


def failures(suite, record):
    result = outcomes(suite, {"record": record})
    return {row.name: row.failure for row in result if row.failure is not None}


@pytest.mark.parametrize("record", hooks.SCORES, ids=lambda record: record.name)
def test_our_scores_conform(record):
    assert failures(NetworkScoreSuite, record) == {}


def test_a_transform_of_ours_conforms():
    (group,) = (record for record in hooks.TRANSFORMS if record.name == "depthwise")
    assert failures(TransformSuite, group) == {}


class Odd(Transform):
    def __init__(self, options):
        del options

    def parts(self, nest):
        return nest.split_outputs(2)

    def variants(self, program):
        result = program.map_main(self.parts)
        if result is not None:
            yield from self.labelled(result)

    def labelled(self, made):
        yield "same", made
        yield "same", made


class Narrowing(Odd):
    def labelled(self, made):
        *stages, last = made.stages
        channels, *size = last.output
        last = attrs.evolve(last, output=(channels - 1, *size))
        yield "narrow", attrs.evolve(made, stages=(*stages, last))


class Partial(Odd):
    """Half of the outputs are written by nobody."""

    def labelled(self, made):
        (stage,) = made.stages
        stage = attrs.evolve(stage, nests=stage.nests[:1])
        yield "partial", attrs.evolve(made, stages=(stage,))


class Nothing(Odd):
    def labelled(self, made):
        return ()


@pytest.mark.parametrize(
    ("transform", "check", "words"),
    [
        (Odd, "variants", "two variants have the same label"),
        (Narrowing, "variants", "has another shape"),
        (Partial, "agreement", "something else"),
        (Nothing, "variants", "it transforms none of"),
    ],
)
def test_a_wrong_transform_is_found_out(transform, check, words):
    assert words in failures(TransformSuite, record_of(transform))[check]


class Constant(NetworkScore):
    value = 1.0

    def __init__(self, options):
        del options

    def score(self, network):
        return self.value


class Undefined(Constant):
    value = float("nan")


class Spoiling(Constant):
    def score(self, network):
        network.images.mul_(2.0)
        return float(network.images.sum())


class Counting(Constant):
    calls = 0

    def score(self, network):
        Counting.calls += 1
        return float(Counting.calls)


@pytest.mark.parametrize(
    ("score", "check", "words"),
    [
        (Constant, "score", "two networks have the same score"),
        (Undefined, "score", "cannot score a small network"),
        (Spoiling, "data", "it changes the images"),
        (Counting, "score", "depends on what was scored before"),
    ],
)
def test_a_wrong_score_is_found_out(score, check, words):
    assert words in failures(NetworkScoreSuite, record_of(score))[check]
