"""Data: what is built in, and what is wrong with a user's."""

import pytest
import torch
from chameleon_core._errors import ConfigError
from chameleon_transforms._data import batches, checked, minibatch

SHAPE = (1, 8, 8)


@pytest.mark.parametrize("name", ["synthetic", "digits"])
def test_built_in_data_have_the_network_s_shape(name):
    images, labels = minibatch(batches(name, (3, 12, 12), 10, 8), (3, 12, 12), 10, 20)
    assert images.shape == (20, 3, 12, 12)
    assert labels.shape == (20,)
    again, _ = minibatch(batches(name, (3, 12, 12), 10, 8), (3, 12, 12), 10, 20)
    assert torch.equal(images, again)


def test_ten_digits_need_ten_outputs():
    with pytest.raises(ConfigError, match="ten digits"):
        batches("digits", SHAPE, 4, 8)


SOURCE = """
import torch

def loader():
    data = torch.utils.data.TensorDataset(torch.zeros(4, 1, 8, 8), torch.arange(4))
    return torch.utils.data.DataLoader(data, batch_size=3)

def fails():
    raise OSError("no disk")

def number():
    return 3
"""


def test_a_loader_of_the_user_s(tmp_path):
    (tmp_path / "mine.py").write_text(SOURCE)
    images, labels = minibatch(batches(f"{tmp_path}/mine.py:loader", SHAPE, 10, 8), SHAPE, 10, 8)
    assert images.shape == (4, *SHAPE)
    assert labels.tolist() == [0, 1, 2, 3]
    for name, words in (("fails", "no disk"), ("number", "no batches"), ("none", "has no 'none'")):
        with pytest.raises(ConfigError, match=words):
            batches(f"{tmp_path}/mine.py:{name}", SHAPE, 10, 8)
    with pytest.raises(ConfigError, match="no data 'imagenet'"):
        batches("imagenet", SHAPE, 10, 8)


ZEROS, CLASSES = torch.zeros(4, *SHAPE), torch.arange(4)


@pytest.mark.parametrize(
    ("pair", "words"),
    [
        (ZEROS, "a Tensor instead of a pair"),
        ((torch.zeros(4, 3, 8, 8), CLASSES), "the network takes"),
        ((ZEROS, CLASSES[:3]), "classes of shape"),
        ((ZEROS, CLASSES.float()), "float32"),
        ((ZEROS, CLASSES + 7), "from 7 to 10"),
        ((ZEROS, CLASSES - 1), "from -1"),
        ((ZEROS * float("nan"), CLASSES), "not finite"),
    ],
)
def test_what_is_wrong_with_a_batch(pair, words):
    with pytest.raises(ConfigError, match=words):
        checked(pair, SHAPE, 10)


@pytest.mark.parametrize("count", [0, 1])
def test_one_sample_is_too_few(count):
    with pytest.raises(ConfigError, match=f"{count} sample"):
        minibatch([(ZEROS[:count], CLASSES[:count])] * bool(count), SHAPE, 10, 8)
