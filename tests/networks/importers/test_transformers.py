"""Networks of a published library, built from its configurations, as anybody would name them."""

import textwrap

import pytest
from chameleon_networks._frontends.bucketed import make_frontend
from chameleon_networks._importers.options import TorchOptions

NETS = """
    import torch
    import transformers

    def resnet():
        config = transformers.ResNetConfig(
            embedding_size=16, hidden_sizes=[16, 32], depths=[1, 1], layer_type="bottleneck",
            num_labels=10,
        )
        return transformers.ResNetForImageClassification(config), (torch.zeros(1, 3, 32, 32),)

    def vit():
        config = transformers.ViTConfig(
            hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64,
            image_size=32, patch_size=8, num_labels=10,
        )
        return transformers.ViTForImageClassification(config), (torch.zeros(1, 3, 32, 32),)

    def bert():
        config = transformers.BertConfig(
            vocab_size=100, hidden_size=32, num_hidden_layers=1, num_attention_heads=2,
            intermediate_size=64, max_position_embeddings=32,
        )
        return transformers.BertModel(config), (torch.full((1, 16), 99),)
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    pytest.importorskip("transformers")
    path = tmp_path_factory.mktemp("nets") / "nets.py"
    path.write_text(textwrap.dedent(NETS), encoding="utf-8")
    return path


# `tests/tvm/lowering` has a smaller network of the same library among the fast tests.
@pytest.mark.long
@pytest.mark.parametrize("network", ["resnet", "vit", "bert"])
def test_it_is_delivered_and_verified(network, file, delivery_into, tmp_path):
    frontend = make_frontend(TorchOptions(source=f"{file}:{network}", compare=False))
    delivery = delivery_into(frontend, tmp_path / "network")
    result = frontend.deliver(delivery)
    assert result.failure is None
    assert result.reference == "torch"
    assert 0 < result.max_relative_error < 1e-4
    tuned = {kernel.name for kernel in result.kernels if kernel.tuned}
    assert tuned == {winner.task.name for winner in delivery.winners}
