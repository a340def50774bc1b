"""Batches of a user's: what is taken, what is refused, and which are kept aside."""

from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from chameleon_core._errors import ConfigError
from chameleon_networks._precision.metrics import evaluate_metric, import_metric
from chameleon_networks._quantize import calibration_batches as module
from chameleon_networks._quantize.calibration_batches import (
    HELD_OUT_BATCHES,
    RANDOM_BATCHES,
    batches_of,
)


class _Network:
    """A network of an image and a whole number."""

    bucket = None
    sources: ClassVar[dict] = {}
    state = ()

    def input_names(self):
        return ["image", "word"]

    def samples(self, rng):
        return [rng.standard_normal((1, 4)).astype(np.float32), rng.integers(0, 9, (2,))]


IMAGE, WORD = "np.ones((1, 4), 'float32')", "np.zeros(2, 'int64')"


def _source(folder, body):
    file = folder / "data.py"
    file.write_text(f"import numpy as np\nimage, word = {IMAGE}, {WORD}\n{body}\n")
    return f"{file}:batches"


def _batches(folder, body):
    network = _Network()
    return batches_of(network, _source(folder, body))


@pytest.mark.parametrize(
    "batch",
    [
        "[image, word]",
        "(image, word)",
        "{'word': word, 'image': image}",
        "[image.astype('float64'), word.astype('int32')]",
        "[image.tolist(), word]",
    ],
)
def test_batches_are_arrays_by_place_or_by_name(batch, tmp_path):
    batches = _batches(tmp_path, f"def batches():\n    for _ in range(4):\n        yield {batch}")
    for image, word in batches:
        np.testing.assert_array_equal(image, np.ones((1, 4)))
        np.testing.assert_array_equal(word, np.zeros(2))
        assert (image.dtype, word.dtype) == (np.float32, np.int64)
    assert batches.count == 4


@pytest.mark.parametrize(
    ("count", "aside"), [(2, 1), (3, 1), (4, 2), (6, 3), (9, HELD_OUT_BATCHES)]
)
def test_the_last_batches_are_kept_aside(count, aside, tmp_path):
    body = f"batches = lambda: ([image * n, word] for n in range({count}))"
    batches = _batches(tmp_path, body)
    assert [int(image[0, 0]) for image, _ in batches] == list(range(count - aside))
    last = [int(sample.inputs[0][0, 0]) for sample in batches.samples]
    assert last == list(range(count - aside, count))
    assert f"{count - aside} of {count} batches" in batches.summary
    assert f"{aside} kept aside" in batches.summary


def test_one_batch_is_calibrated_and_checked_with_and_that_is_said(tmp_path):
    batches = _batches(tmp_path, "batches = lambda: [[image, word]]")
    assert len(list(batches)) == len(batches.samples) == 1
    assert "one batch" in batches.summary
    assert "measured on too" in batches.summary


def test_batches_without_end_are_left_at_some_point(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MAX_BATCHES", 7)
    batches = _batches(tmp_path, "def batches():\n    while True:\n        yield image, word")
    assert len(list(batches)) == 7 - HELD_OUT_BATCHES
    assert batches.count == 7


def test_random_inputs_take_the_place_of_batches():
    network = _Network()
    batches = batches_of(network, None)
    used = list(batches)
    assert len(used) + len(batches.samples) == RANDOM_BATCHES
    drawn = [*used, *(sample.inputs for sample in batches.samples)]
    assert len({image.tobytes() for image, _ in drawn}) == RANDOM_BATCHES
    assert "random inputs" in batches.summary


@pytest.mark.parametrize(
    ("body", "said", "hint"),
    [
        ("def batches():\n    yield from []", "yields no batch", "at least two"),
        ("def batches():\n    return []", "yields no batch", "at least two"),
        ("def batches():\n    pass", "returned a NoneType instead of batches", "Yield"),
        ("def batches():\n    return image", "returned a ndarray instead of batches", "Yield"),
        ("batches = 3", "is an int and no function", "Name a function"),
        ("def batches():\n    yield image", "has 1 arrays for 2 inputs", r"image \[1, 4\]"),
        ("def batches():\n    yield {'image': image}", r"lacks \['word'\]", r"word \[2\]"),
        (
            "def batches():\n    yield {'image': image, 'word': word, 'more': 1}",
            r"has \['more'\]",
            "takes",
        ),
        (
            "def batches():\n    yield image, word\n    yield image.T, word",
            r"batch 2 of .*: input 'image' has the shape \[4, 1\] instead of \[1, 4\]",
            "very shape",
        ),
        (
            "def batches():\n    yield word[:1].repeat(4).reshape(1, 4), word",
            "input 'image' is of int64 instead of float32",
            "astype",
        ),
        ("def batches():\n    yield [['a'] * 4], word", "is of <U1 instead of float32", "astype"),
        ("def batches():\n    yield image * np.nan, word", "'image' has NaN in it", "Leave"),
        ("def batches():\n    yield image / 0, word", "'image' has infinities in it", "Leave"),
        (
            "def batches():\n    yield image, word\n    raise OSError('no disk')",
            "failed after 1 batches: OSError: no disk",
            "by hand",
        ),
        ("def batches(path):\n    yield image, word", "failed after 0 batches: TypeError", "hand"),
        ("other = 3", "has no 'batches'", "defines no function|It has"),
    ],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_what_is_no_batch_is_refused(body: str, said: str, hint: str, tmp_path: Path):
    with pytest.raises(ConfigError, match=said) as raised:
        list(_batches(tmp_path, body))
    assert raised.value.hint is not None
    assert any(word in raised.value.hint for word in hint.replace("\\", "").split("|"))


def _metric(folder, body):
    file = folder / "evaluate.py"
    file.write_text(body)
    return import_metric(f"{file}:accuracy")


def test_a_metric_calls_the_network_as_a_delivered_one_is_called(tmp_path):
    metric = _metric(tmp_path, "def accuracy(network):\n    return network(3, 4) + network(1, 1)")
    assert evaluate_metric(metric, "it", lambda inputs: [np.asarray(sum(inputs))]) == 9.0
    several = _metric(tmp_path, "def accuracy(network):\n    return len(network(3))")
    assert evaluate_metric(several, "it", lambda _: [np.zeros(1), np.zeros(2)]) == 2.0


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("def accuracy(network):\n    raise KeyError('label')", "failed: KeyError: 'label'"),
        ("def accuracy():\n    return 1", "failed: TypeError"),
        ("def accuracy(network):\n    return 'good'", "returned 'good', which is no finite number"),
        ("def accuracy(network):\n    return None", "returned None, which is no finite number"),
        ("def accuracy(network):\n    return float('nan')", "returned nan"),
        ("def accuracy(network):\n    return 10**400", "returned 10*.*0, which is no finite"),
        ("def accuracy(network):\n    return 10**5000", "returned a long int, which is no"),
        ("accuracy = 0.9", "is a float and no function"),
    ],
)
def test_a_metric_that_is_none_is_refused(body, said, tmp_path):
    with pytest.raises(ConfigError, match=said) as raised:
        evaluate_metric(_metric(tmp_path, body), "evaluate.py:accuracy", lambda inputs: inputs)
    assert raised.value.hint
