"""Hugging Face's networks for text: encoders, decoders on a prompt, and both."""

from __future__ import annotations

from typing import Any

import torch
import transformers as hf
from torch import nn

from corpus_networks.making import Made, made

_SMALL: dict[str, Any] = {
    "hidden_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 1024,
}


def _tokens(config: Any, count: int = 64) -> torch.Tensor:
    return torch.full((1, count), config.vocab_size - 1, dtype=torch.int64)


def bert_mini() -> Made:
    """BERT: 4 layers of 256, 128 tokens, with an attention mask."""
    config = hf.BertConfig(**_SMALL)
    mask = torch.ones(1, 128, dtype=torch.int64)
    return made(hf.BertModel(config), _tokens(config, 128), mask)


def distilbert() -> Made:
    """DistilBERT: 6 layers of 768."""
    config = hf.DistilBertConfig()
    return made(hf.DistilBertForSequenceClassification(config), _tokens(config))


def roberta_small() -> Made:
    """RoBERTa: positions counted from the tokens."""
    config = hf.RobertaConfig(**_SMALL)
    return made(hf.RobertaForSequenceClassification(config), _tokens(config))


def albert() -> Made:
    """ALBERT: twelve layers that share their weights."""
    config = hf.AlbertConfig(
        embedding_size=128,
        hidden_size=384,
        num_hidden_layers=12,
        num_attention_heads=6,
        intermediate_size=1536,
    )
    return made(hf.AlbertModel(config), _tokens(config))


def electra_small() -> Made:
    """ELECTRA small's discriminator: 12 layers of 256."""
    config = hf.ElectraConfig()
    return made(hf.ElectraForPreTraining(config), _tokens(config))


def mpnet_small() -> Made:
    """MPNet: buckets of relative positions."""
    config = hf.MPNetConfig(**_SMALL)
    return made(hf.MPNetModel(config), _tokens(config))


def deberta_v2_small() -> Made:
    """DeBERTa v2: attention between contents and positions, apart."""
    config = hf.DebertaV2Config(
        **_SMALL,
        vocab_size=30000,
        relative_attention=True,
        position_buckets=32,
        pos_att_type=["p2c", "c2p"],
        norm_rel_ebd="layer_norm",
        share_att_key=True,
    )
    return made(hf.DebertaV2Model(config), _tokens(config))


def squeezebert() -> Made:
    """SqueezeBERT: grouped conv1d in the place of matrix products; 4 layers of 768."""
    config = hf.SqueezeBertConfig(num_hidden_layers=4)
    return made(hf.SqueezeBertModel(config), _tokens(config))


def fnet() -> Made:
    """FNet: Fourier transforms in the place of attention."""
    config = hf.FNetConfig(
        hidden_size=256, num_hidden_layers=4, intermediate_size=1024, vocab_size=8000
    )
    return made(hf.FNetModel(config), _tokens(config))


def clip_text() -> Made:
    """CLIP's text tower, 6 layers of 384; the last token's features."""
    config = hf.CLIPTextConfig(
        vocab_size=10000,
        hidden_size=384,
        intermediate_size=1536,
        num_hidden_layers=6,
        num_attention_heads=6,
        eos_token_id=9999,
        bos_token_id=0,
    )
    return made(hf.CLIPTextModel(config), _tokens(config))


def t5_encoder() -> Made:
    """T5's encoder, small: relative position buckets, root-mean-square normalisation."""
    config = hf.T5Config()
    return made(hf.T5EncoderModel(config), _tokens(config))


class _FirstTokens(nn.Module):
    """An encoder-decoder whose decoder is at the beginning of its answer."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, tokens: torch.Tensor, answer: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.network(
            input_ids=tokens, decoder_input_ids=answer, use_cache=False
        ).logits
        return found


def bart_small() -> Made:
    """BART: an encoder of 64 tokens, and a decoder of 8 that attends to it."""
    config = hf.BartConfig(
        vocab_size=8000,
        d_model=256,
        encoder_layers=3,
        decoder_layers=3,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=1024,
        decoder_ffn_dim=1024,
    )
    network = _FirstTokens(hf.BartForConditionalGeneration(config))
    return made(network, _tokens(config), _tokens(config, 8))


def gpt2() -> Made:
    """GPT-2: 6 layers, 64 tokens."""
    config = hf.GPT2Config(n_layer=6, use_cache=False)
    return made(hf.GPT2LMHeadModel(config), _tokens(config))


def opt_small() -> Made:
    """OPT: 4 layers of 256; positions are a cumulative sum."""
    config = hf.OPTConfig(
        vocab_size=8000,
        hidden_size=256,
        num_hidden_layers=4,
        num_attention_heads=4,
        ffn_dim=1024,
        word_embed_proj_dim=256,
        use_cache=False,
    )
    return made(hf.OPTForCausalLM(config), _tokens(config))


def bloom_small() -> Made:
    """BLOOM: linear biases on attention."""
    config = hf.BloomConfig(vocab_size=8000, hidden_size=256, n_layer=4, n_head=4, use_cache=False)
    return made(hf.BloomForCausalLM(config), _tokens(config))


def gpt_neox_small() -> Made:
    """GPT-NeoX: rotary positions on a quarter of each head, both branches side by side."""
    config = hf.GPTNeoXConfig(**_SMALL, vocab_size=8000, use_cache=False)
    return made(hf.GPTNeoXForCausalLM(config), _tokens(config))


def llama_small() -> Made:
    """Llama: rotary positions, grouped queries, gated SiLU."""
    config = hf.LlamaConfig(**_SMALL, vocab_size=8000, num_key_value_heads=2, use_cache=False)
    return made(hf.LlamaForCausalLM(config), _tokens(config))


def qwen2_small() -> Made:
    """Qwen2: biases on queries, keys and values."""
    config = hf.Qwen2Config(**_SMALL, vocab_size=8000, num_key_value_heads=2, use_cache=False)
    return made(hf.Qwen2ForCausalLM(config), _tokens(config))


def gemma2_small() -> Made:
    """Gemma 2: soft-capped scores, sliding windows in every other layer."""
    config = hf.Gemma2Config(
        **_SMALL, vocab_size=8000, num_key_value_heads=2, head_dim=64, use_cache=False
    )
    return made(hf.Gemma2ForCausalLM(config), _tokens(config))


def mamba_small() -> Made:
    """Mamba: a selective scan over 16 tokens, unrolled by the export."""
    config = hf.MambaConfig(vocab_size=2000, hidden_size=128, num_hidden_layers=2, use_cache=False)
    return made(hf.MambaForCausalLM(config), _tokens(config, 16))
