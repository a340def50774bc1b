"""Weights that are carried over, and the folder of a network, which needs torch alone."""

import importlib.util
import shutil
import sys

import attrs
import numpy as np
import pytest
import torch
from chameleon_core._errors import ConfigError
from chameleon_transforms._delivery import network_folder, retrain
from chameleon_transforms._delivery.weights import WeightTransfer, transfer_weights, ungrouped
from chameleon_transforms._nest.modules import module_of
from chameleon_transforms._nest.program import single_nest
from chameleon_transforms._network.channels import traced
from chameleon_transforms._network.replacement import with_modules
from programs import completed
from torch import nn

WHOLE = single_nest(8, 16, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), size=(6, 6))


def answers(program, weight, x):
    module = module_of(program)
    assert transfer_weights(module, program, weight, None)
    with torch.no_grad():
        return module(x)


@pytest.fixture
def x():
    return torch.randn(2, 8, 6, 6, generator=torch.Generator().manual_seed(0))


def low_rank_weight(rank, arranged):
    """A weight that is a product of matrices of a rank."""
    torch.manual_seed(0)
    rows, columns = arranged
    return torch.randn(rows, rank) @ torch.randn(rank, columns) / 8


@pytest.mark.parametrize(
    ("name", "weight"),
    [
        ("bottleneck", low_rank_weight(8, (16, 72)).reshape(16, 8, 3, 3)),
        (
            "input-bottleneck",
            low_rank_weight(4, (8, 144)).reshape(8, 16, 3, 3).transpose(0, 1).contiguous(),
        ),
        (
            "low-rank",
            low_rank_weight(8, (24, 48)).reshape(8, 3, 16, 3).permute(2, 0, 1, 3).contiguous(),
        ),
    ],
)
def test_what_has_the_rank_is_kept_exactly(name, weight, transforms, x):
    expected = nn.functional.conv2d(x, weight, padding=1)
    (label, program), *_ = transforms[name].variants(WHOLE)
    assert label.endswith("(2)")
    assert torch.allclose(answers(program, weight, x), expected, atol=1e-4)


def test_the_largest_singular_values_stay(transforms, x):
    weight = torch.randn(16, 8, 3, 3, generator=torch.Generator().manual_seed(3))
    expected = nn.functional.conv2d(x, weight, padding=1)
    errors = [
        float((answers(program, weight, x) - expected).norm())
        for _, program in transforms["bottleneck"].variants(WHOLE)
    ]
    assert errors == sorted(errors)
    assert errors[0] < float(expected.norm())


def test_groups_keep_blocks_and_each_filter_s_magnitude(transforms):
    weight = torch.randn(16, 8, 3, 3, generator=torch.Generator().manual_seed(3))
    program = dict(transforms["group"].variants(WHOLE))["group(2)"]
    module = module_of(program)
    assert transfer_weights(module, program, weight, None)
    result = ungrouped(module.convolutions[0][0].weight.detach(), 2)
    assert torch.equal(result[:8, 4:], torch.zeros(8, 4, 3, 3))
    part = weight[:8, :4]
    scale = result[:8, :4] / part
    assert torch.allclose(scale, scale[:, :1, :1, :1].expand_as(scale), atol=1e-4)
    assert torch.allclose(result.flatten(1).norm(dim=1), weight.flatten(1).norm(dim=1), atol=1e-4)


def test_slabs_begin_as_the_whole(transforms, x):
    weight = torch.randn(16, 8, 3, 3, generator=torch.Generator().manual_seed(3))
    split = WHOLE.map_main(lambda nest: nest.split_rows(2))
    expected = nn.functional.conv2d(x, weight, padding=1)
    assert torch.allclose(answers(split, weight, x), expected, atol=1e-4)


def test_channels_without_weight_are_those_that_go(small, images, space):
    with torch.no_grad():
        for number in range(1, 16, 2):  # every second channel between the block's convolutions
            small.block.first.weight[number] = 0.0
            small.block.norm.weight[number] = small.block.norm.bias[number] = 0.0
    other = type(space)(traced(small, images), [], sequence=1, widths=(1, 2))
    row = np.array(other.original)
    row[other.design.index["width:block.first"]] = 1
    modules, fresh = WeightTransfer(other, other.candidate(row)).modules()
    assert not fresh
    x = torch.randn(2, 1, 8, 8)
    changed = with_modules(other.network.module, modules).eval()
    # Filters of the second convolution are scaled up for what they no longer read.
    before = small.block.second.weight.detach()[:, ::2]
    after = modules["block.second"].weight.detach()
    assert torch.allclose(
        after / after.flatten(1).norm(dim=1)[:, None, None, None],
        before / before.flatten(1).norm(dim=1)[:, None, None, None],
        atol=1e-4,
    )
    assert changed(x).shape == (2, 10)


def loaded(file):
    spec = importlib.util.spec_from_file_location(f"written_{file.stem}", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_written_code_is_the_network(small, images, space, tmp_path):
    x = torch.randn(3, 1, 8, 8)
    for number, row in enumerate(space.design.sample(3, np.random.default_rng(4))):
        candidate = space.candidate(row)
        folder = tmp_path / str(number)
        folder.mkdir()
        network_folder.write_candidate(space, candidate, images, folder)
        network, (example,) = loaded(folder / "network.py").make()
        modules, _ = WeightTransfer(space, candidate).modules()
        expected = with_modules(space.network.module, modules).eval()
        assert example.shape == images.shape
        with torch.no_grad():
            assert torch.allclose(network(x), expected(x), atol=1e-5)
        assert "chameleon_" not in (folder / "network.py").read_text()


class Scale(nn.Module):
    def __init__(self, by):
        super().__init__()
        self.by = nn.Parameter(torch.full((by,), 2.0))


def test_a_module_without_a_text_of_its_own_is_told():
    with pytest.raises(ConfigError, match="'scale', a Scale"):
        network_folder.constructor(Scale(3), "scale")


@pytest.fixture(scope="module")
def digits_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    images = torch.randn(60, 1, 8, 8)
    network_folder.write_data([(images, (images.mean((1, 2, 3)) > 0).long())], folder / "data")
    return folder


def test_data_are_split(digits_folder):
    train = torch.load(digits_folder / "data" / "train.pt", weights_only=True)
    test = torch.load(digits_folder / "data" / "test.pt", weights_only=True)
    assert (len(train[1]), len(test[1])) == (48, 12)


@pytest.mark.full
def test_the_script_runs_by_itself(small, images, space, digits_folder):
    network_folder.write_candidate(space, space.candidate(space.original), images, digits_folder)
    network_folder.write_network(space.network.module, images, digits_folder, "original")
    script = digits_folder / "retrain.py"
    shutil.copyfile(retrain.__file__, script)
    done = completed([sys.executable, "-I", script, "--epochs", "1"], cwd=digits_folder.parent)
    assert "accuracy of the original" in done.stdout
    network = loaded(digits_folder / "network.py").Network()
    network.load_state_dict(torch.load(digits_folder / "retrained.pt", weights_only=True))


@pytest.mark.full
def test_training_learns_and_a_loss_that_is_no_number_is_told(small):
    torch.manual_seed(0)
    classes = torch.arange(64) % 2
    images = torch.randn(64, 1, 8, 8) + 2.0 * classes[:, None, None, None]
    options = retrain.arguments(["--epochs", "25", "--batch", "16", "--rate", "0.05"])
    assert retrain.train(small, None, images, classes, options, lambda _: None)
    assert retrain.accuracy(small, images, classes, 16) > 0.9
    said = []
    before = {name: value.clone() for name, value in small.state_dict().items()}
    broken = torch.full_like(images, float("inf"))
    assert not retrain.train(small, None, broken, classes, options, said.append)
    assert "the loss is nan" in said[-1]
    assert all(torch.equal(before[name], row) for name, row in small.state_dict().items())
    with pytest.raises(SystemExit, match="One sample"):
        retrain.train(small, None, images[:1], classes[:1], options)


def test_unknown_stages_begin_with_new_weights(transforms):
    odd = attrs.evolve(WHOLE, stages=WHOLE.stages * 2)
    assert not transfer_weights(module_of(odd), odd, torch.randn(16, 8, 3, 3), None)
