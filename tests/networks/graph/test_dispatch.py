"""Which bucket a call goes to, and what is padded and cut for it."""

import itertools
import logging
import math

import numpy as np
import pytest
from chameleon_networks._artifact.buckets import Buckets as Dispatch
from chameleon_networks._artifact.dispatch import padding_tests, timed_extents
from chameleon_networks._shapes import Axis, Buckets, Dimension, dimensions_of
from hypothesis import given
from hypothesis import strategies as st

PAD = 7.0


def _table(batches, lengths, pads=(0.0, PAD)):
    """Inputs ``ids[batch, length]`` and ``mask[length]``; output ``[batch, 2 * length, 3]``."""
    batch_pad, length_pad = pads
    return {
        "inputs": [{"name": "ids", "dtype": "int64"}, {"name": "mask", "dtype": "float32"}],
        "dimensions": [
            {"name": "batch", "axes": [[0, 0, batch_pad]], "outputs": [[0, 0, 1]]},
            {
                "name": "length",
                "axes": [[0, 1, length_pad], [1, 0, length_pad]],
                "outputs": [[0, 1, 2]],
            },
        ],
        "buckets": [
            {
                "name": f"{batch}-{length}",
                "folder": f"{batch}-{length}",
                "inputs": [[batch, length], [length]],
            }
            for batch, length in itertools.product(batches, lengths)
        ],
    }


def _network(table, opened):
    """What it is called with tells the bucket; it repeats its ids."""

    def network(folder):
        opened.append(folder)

        def run(ids, mask):
            assert folder == f"{ids.shape[0]}-{ids.shape[1]}"
            assert mask.shape == ids.shape[1:]
            return np.repeat(np.repeat(ids, 2, axis=1)[..., None], 3, axis=2)

        return run

    return Dispatch(table, network)


EXTENTS = st.lists(st.integers(1, 9), min_size=1, max_size=3, unique=True).map(sorted)


PAIR = st.tuples(st.integers(1, 10), st.integers(1, 10))


@given(EXTENTS, EXTENTS, PAIR, st.booleans(), st.booleans())
def test_the_smallest_bucket_that_holds_the_inputs(batches, lengths, asked, pad_batch, pad_len):
    batch, length = asked
    pads = (0.0 if pad_batch else None, PAD if pad_len else None)
    opened = []
    network = _network(_table(batches, lengths, pads), opened)
    ids = np.arange(1, batch * length + 1).reshape(batch, length)
    holding = [
        (b * n + n, b, n)
        for b, n in itertools.product(batches, lengths)
        if (b == batch or (pad_batch and b > batch)) and (n == length or (pad_len and n > length))
    ]
    if not holding:
        with pytest.raises(ValueError, match=r"no bucket takes ids"):
            network(ids, np.ones(length))
        assert not opened, "nothing is loaded for it"
        return
    [out] = network(ids, np.ones(length))
    exact = batch in batches and length in lengths
    _, *wanted = (0, batch, length) if exact else min(holding)
    assert opened == ["-".join(map(str, wanted))]
    np.testing.assert_array_equal(out, np.repeat(np.repeat(ids, 2, axis=1)[..., None], 3, axis=2))


def test_a_call_is_placed_without_running_anything():
    opened = []
    network = _network(_table([2, 4], [4]), opened)
    ids, mask = np.ones((2, 4), np.int64), np.ones(4)
    exact = network.padded_call(ids, mask)
    assert (exact.bucket, exact.cuts) == ("2-4", [])
    assert exact.inputs[0] is ids
    filled = network.padded_call(ids[:, :3].repeat(2, 0)[:3], mask[:3])
    assert (filled.bucket, filled.cuts) == ("4-4", [(0, 0, 3), (0, 1, 6)])
    np.testing.assert_array_equal(filled.inputs[0][:, 3], PAD)
    np.testing.assert_array_equal(filled.inputs[0][:3, :3], 1)
    with pytest.raises(ValueError, match=r"no bucket takes ids \[5, 4\]"):
        network.padded_call(np.ones((5, 4)), mask)
    assert not opened


@pytest.mark.parametrize("dtype", ["float64", "complex64", "object"])
def test_padding_rounds_no_numbers(dtype):
    # The network converts or refuses them before, as if nothing was padded.
    ids = np.full((1, 3), 0.5, dtype)
    filled = _network(_table([1], [4]), []).padded_call(ids, np.ones(3, np.float16)).inputs
    assert [array.dtype for array in filled] == [dtype, "float16"]
    np.testing.assert_array_equal(filled[0], [[0.5, 0.5, 0.5, PAD]])


def test_what_is_done_is_said_once(caplog):
    opened = []
    network = _network(_table((1, 8), (4, 16)), opened)
    with caplog.at_level(logging.INFO, logger="chameleon.network"):
        for _ in range(2):
            network(np.ones((3, 5), int), np.ones(5))
        network(np.ones((8, 16), int), np.ones(16))
    assert [record.getMessage() for record in caplog.records] == [
        "ids [3, 5], mask [5]: batch 3 is padded to 8 and length 5 is padded to 16",
        "ids [8, 16], mask [16]: bucket 8-16 is run as it is",
    ]
    assert opened == ["8-16"], "a bucket is loaded once"
    assert network.plan(np.ones((1, 3)), np.ones(3)) == "length 3 is padded to 4"
    assert opened == ["8-16"], "and a plan loads none"


@pytest.mark.parametrize(
    ("shapes", "words"),
    [
        (((1, 17), (17,)), r"there are 1-4 \(ids \[1, 4\], mask \[4\]\); 1-16"),
        (((1, 3), (4,)), "all axes of a dimension alike"),
        (((1, 3, 1), (3,)), "no bucket takes"),
        (((1, 0), (0,)), "no bucket takes"),
    ],
)
def test_what_no_bucket_takes(shapes, words):
    network = _network(_table((1, 8), (4, 16)), [])
    with pytest.raises(ValueError, match=words):
        network.plan(*map(np.ones, shapes))


def test_without_pad_it_is_said_how_to_have_it():
    network = _network(_table((1,), (4, 16), (None, None)), [])
    with pytest.raises(ValueError, match="with a `pad` beside its `buckets` in the pipeline"):
        network(np.ones((1, 3)), np.ones(3))
    with pytest.raises(ValueError, match="takes ids, mask, not 1 arrays"):
        network(np.ones((1, 4)))


@given(EXTENTS, EXTENTS, st.booleans(), st.booleans())
def test_probes_are_no_buckets_and_the_loader_pads_them_so(batches, lengths, pad_batch, pad_length):
    pads = (0.0 if pad_batch else None, 0.0 if pad_length else None)
    dimensions = [
        Dimension(name=name, buckets=tuple(extents), axes=(Axis(input="x", axis=axis, pad=pad),))
        for axis, (name, extents, pad) in enumerate(
            zip(("batch", "length"), (batches, lengths), pads, strict=True)
        )
    ]
    samples = padding_tests(dimensions)
    padded = [
        {n for n, (a, p) in enumerate(zip(probe.asked, probe.padded, strict=True)) if a != p}
        for probe in samples
    ]
    gaps = {
        number
        for number, (extents, pad) in enumerate(zip((batches, lengths), pads, strict=True))
        if pad is not None and len(extents) < max(extents)
    }
    assert set().union(*padded) == gaps
    assert (gaps in padded) == bool(gaps), "all that can be is padded at once, too"
    network = _network(_table(batches, lengths, pads), [])
    for probe in samples:
        batch, length = probe.asked
        said = network.plan(np.ones((batch, length)), np.ones(length))
        for name, asked, to in zip(("batch", "length"), probe.asked, probe.padded, strict=True):
            assert (f"{name} {asked} is padded to {to}" in said) == (asked != to)
        assert math.prod(probe.padded) > math.prod(probe.asked)


def test_ranges_are_timed_and_padded_at_their_probes():
    length, batch = Buckets(range=(1, 40), name="length"), Buckets(buckets=(2, 8), name="batch")
    dimensions = dimensions_of({"x": (batch, length)})
    probes = timed_extents(dimensions)
    extents = [(8, own) for own in length.probes]
    assert [probe.asked for probe in probes] == extents
    assert probes[0].padded == (8, 1)
    assert probes[-1].padded == (8, 40)
    between = [probe for probe in probes if probe.words]
    assert all(probe.asked != probe.padded for probe in between)
    assert padding_tests(dimensions) == between
