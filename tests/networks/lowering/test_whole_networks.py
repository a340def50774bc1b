"""Networks of Hugging Face's classes, and very small and very large ones, give torch's numbers."""

import pytest
import torch

from .networks import wrong
from .torch_networks import Of, ids, r

_SMALL = {"num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 2}


def _gpt2():
    hf = pytest.importorskip("transformers")
    config = hf.GPT2Config(n_layer=2, n_embd=32, n_head=2, vocab_size=50, use_cache=False)
    return hf.GPT2LMHeadModel(config), (ids(50, 1, 8),)


def _bert():
    hf = pytest.importorskip("transformers")
    config = hf.BertConfig(**_SMALL, intermediate_size=64, vocab_size=50)
    return hf.BertModel(config), (ids(50, 1, 8),)


def _t5():
    hf = pytest.importorskip("transformers")
    config = hf.T5Config(num_layers=2, d_model=32, d_kv=16, num_heads=2, d_ff=64, vocab_size=50)
    return hf.T5EncoderModel(config), (ids(50, 1, 8),)


def _vit():
    hf = pytest.importorskip("transformers")
    config = hf.ViTConfig(**_SMALL, intermediate_size=64, image_size=32, patch_size=8)
    return hf.ViTModel(config), (r(1, 3, 32, 32),)


def _swin():
    hf = pytest.importorskip("transformers")
    config = hf.SwinConfig(
        image_size=32, patch_size=4, embed_dim=16, depths=[2, 2], num_heads=[2, 2], window_size=4
    )
    return hf.SwinModel(config), (r(1, 3, 32, 32),)


def _whisper():
    hf = pytest.importorskip("transformers")
    two = ("encoder_layers", "encoder_attention_heads", "decoder_attention_heads", "eos_token_id")
    one = ("decoder_layers", "bos_token_id", "decoder_start_token_id")
    sizes = {"d_model": 32, "vocab_size": 60, "max_source_positions": 20, "num_mel_bins": 8}
    sizes |= {"encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "pad_token_id": 0}
    config = hf.WhisperConfig(**sizes, **dict.fromkeys(two, 2), **dict.fromkeys(one, 1))
    return hf.WhisperModel(config).get_encoder(), (r(1, 8, 40),)


class Deep(torch.nn.Module):
    """Two thousand operators: one convolution's weights are shared by five hundred."""

    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(4, 4, 1)

    def forward(self, x):
        for _ in range(500):
            x = 0.5 * torch.relu(self.conv(x)) + x
        return x


@pytest.mark.full
def test_a_language_model():
    assert wrong({"gpt-2": _gpt2}) == {}


@pytest.mark.long
@pytest.mark.parametrize("case", [_bert, _t5, _vit, _swin, _whisper])
def test_networks_of_hugging_face(case):
    assert wrong({case.__name__: case}) == {}


@pytest.mark.long
def test_two_thousand_operators():
    assert wrong({"deep": lambda: (Deep(), (r(1, 4, 4, 4),))}) == {}


def test_one_operator_and_none():
    transposed = torch.randn(4, 3).T
    cases = {
        "one": lambda: (Of(torch.relu), (r(3, 4),)),
        "none": lambda: (Of(lambda x, _unused: {"same": x}), (r(3, 4), ids(3, 2))),
        "not contiguous": lambda: (Of(lambda x: x @ transposed), (r(2, 3),)),
    }
    assert wrong(cases) == {}
