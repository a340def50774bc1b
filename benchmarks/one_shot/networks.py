"""The networks that ``plan-cpu.yaml`` learns from, by their names.

transformers imports torchvision where it is installed, which fails beside a CPU build of torch
unless ``torchvision_models`` has prepared it; so that comes first, wherever a network is from.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from importlib import import_module
from typing import Any

from corpus_networks.torchvision_library import torchvision_models

with contextlib.suppress(ImportError):  # only torchvision's own networks need it
    torchvision_models()

_PLACES = {
    "images": (
        *("alexnet", "vgg11", "resnet50", "resnext50_32x4d", "wide_resnet50_2", "densenet121"),
        *("squeezenet1_1", "shufflenet_v2", "mobilenet_v3_large", "mnasnet", "efficientnet_b0"),
        *("swin_t", "maxvit_t", "vit_b_32", "lraspp_mobilenet_v3", "deeplabv3_mobilenet_v3"),
        *("fasterrcnn_mobilenet_backbone", "ssdlite_backbone", "r2plus1d_18"),
    ),
    "vision_transformers": ("vit_tiny", "beit_tiny", "mobilevit_small", "segformer_b0"),
    "text": (
        *("bert_mini", "roberta_small", "electra_small", "mpnet_small", "deberta_v2_small"),
        *("squeezebert", "fnet", "clip_text", "t5_encoder", "opt_small", "gemma2_small"),
    ),
    "audio": ("wav2vec2_small", "conformer_small", "audio_spectrogram_transformer"),
    "written_images": (
        *("unet", "diffusion_unet", "espcn", "edsr", "style_transfer", "spatial_transformer"),
        *("mlp_mixer", "video_conv3d", "pointnet"),
    ),
    "written_sequences": (
        *("keyword_conv1d", "lstm_classifier", "tcn", "tabular_mlp", "transformer_encoder"),
    ),
}
"""Modules of ``corpus_networks``, and functions in them: none that ``corpus.yaml`` holds out."""


def __getattr__(name: str) -> Callable[[], Any]:
    for module, names in _PLACES.items():
        if name in names:
            function: Callable[[], Any] = getattr(import_module(f"corpus_networks.{module}"), name)
            return function
    raise AttributeError(name)
