"""Hugging Face's networks for sound."""

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
    "conv_dim": (128, 128, 128, 128, 128, 128, 128),
    "num_conv_pos_embeddings": 64,
}
"""The encoders on raw sound; half a second of it at 16 kHz is 24 frames."""


def _sound(samples: int = 16000) -> torch.Tensor:
    return torch.randn(1, samples)


def wav2vec2_small() -> Made:
    """wav2vec 2.0: seven strided conv1d, a grouped one of 64 taps, and a transformer."""
    return made(hf.Wav2Vec2ForCTC(hf.Wav2Vec2Config(**_SMALL)), _sound())


def hubert_small() -> Made:
    """HuBERT, with layer normalisation between its convolutions."""
    config = hf.HubertConfig(**_SMALL, feat_extract_norm="layer", do_stable_layer_norm=True)
    return made(hf.HubertModel(config), _sound())


def conformer_small() -> Made:
    """wav2vec 2.0 with a Conformer: depthwise conv1d of 31 taps, gated linear units."""
    config = hf.Wav2Vec2ConformerConfig(**_SMALL, position_embeddings_type="rotary")
    return made(hf.Wav2Vec2ConformerModel(config), _sound())


class _Encoder(nn.Module):
    """Whisper's encoder alone."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.network(features).last_hidden_state
        return found


def whisper_tiny_encoder() -> Made:
    """Whisper tiny's encoder on 30 s: two conv1d, then 4 layers of 384 on 1500 frames."""
    config = hf.WhisperConfig()
    return made(_Encoder(hf.WhisperModel(config).encoder), torch.randn(1, 80, 3000))


def audio_spectrogram_transformer() -> Made:
    """AST: a transformer of 192 on overlapping patches of a spectrogram."""
    config = hf.ASTConfig(
        hidden_size=192,
        num_hidden_layers=6,
        num_attention_heads=3,
        intermediate_size=768,
        max_length=256,
    )
    return made(hf.ASTForAudioClassification(config), torch.randn(1, 256, 128))
