"""Whatever runs a network beside us is calibrated with the same inputs, and checked on others."""

from pathlib import Path

import numpy as np
import pytest
from chameleon_core._errors import ConfigError
from chameleon_networks._comparison.reduced_precision import held_out_samples, reduced_comparison

DATA = """
from pathlib import Path

import numpy as np

def batches():
    with Path(__file__).with_suffix(".read").open("a") as file:
        file.write("once ")
    for number in range(6):
        yield np.full((1, 3, 8, 8), number, "float32")

def nothing():
    return []
"""


def _same(inputs):
    return list(inputs)


def _arrays(request):
    return [sample.inputs for sample in request.samples]


@pytest.fixture
def data(tmp_path):
    file = tmp_path / "data.py"
    file.write_text(DATA)
    return str(file)


def test_the_users_inputs_are_used_once(tiny, data):
    request = reduced_comparison(tiny, ["int8"], f"{data}:batches", _same)
    calibrated = [int(array[0, 0, 0, 0]) for [array] in request.calibration]
    checked = [int(array[0, 0, 0, 0]) for [array] in _arrays(request)]
    assert (calibrated, checked) == ([0, 1, 2], [3, 4, 5])
    assert request.expected == _arrays(request), "the reference was run on them"
    assert Path(data).with_suffix(".read").read_text() == "once "


def test_random_inputs_are_others_than_those_checked(tiny):
    request = reduced_comparison(tiny, ["int8"], None, _same)
    assert request.calibration
    for [image] in request.calibration:
        assert image.shape == (1, 3, 8, 8)
        assert not any(np.array_equal(image, other) for [other] in _arrays(request))


def test_nothing_is_read_where_nothing_is_calibrated(tiny):
    assert not reduced_comparison(tiny, ["as-it-comes"], None, _same).calibration


def test_inputs_that_are_missing_are_said(tiny, data):
    with pytest.raises(ConfigError, match="yields no batch"):
        held_out_samples(tiny, f"{data}:nothing")
