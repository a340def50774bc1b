"""Hugging Face's networks for images: classification, segmentation, detection, super-resolution."""

from __future__ import annotations

import torch
import transformers as hf

from corpus_networks.making import Made, made


def _image(size: int) -> torch.Tensor:
    return torch.randn(1, 3, size, size)


def vit_tiny() -> Made:
    """ViT: 12 layers of 192."""
    config = hf.ViTConfig(
        hidden_size=192, num_hidden_layers=12, num_attention_heads=3, intermediate_size=768
    )
    return made(hf.ViTForImageClassification(config), _image(224))


def deit_small() -> Made:
    """DeiT: 12 layers of 384, with a token for distillation."""
    config = hf.DeiTConfig(
        hidden_size=384, num_hidden_layers=12, num_attention_heads=6, intermediate_size=1536
    )
    return made(hf.DeiTForImageClassification(config), _image(224))


def beit_tiny() -> Made:
    """BEiT: relative position biases."""
    config = hf.BeitConfig(
        hidden_size=192, num_hidden_layers=12, num_attention_heads=3, intermediate_size=768
    )
    return made(hf.BeitForImageClassification(config), _image(224))


def dinov2_small() -> Made:
    """DINOv2: 12 layers of 384 on patches of 14."""
    config = hf.Dinov2Config(
        hidden_size=384, num_hidden_layers=12, num_attention_heads=6, image_size=224
    )
    return made(hf.Dinov2Model(config), _image(224))


def clip_vision() -> Made:
    """CLIP's image tower, 12 layers of 384 on patches of 32."""
    config = hf.CLIPVisionConfig(
        hidden_size=384, num_hidden_layers=12, num_attention_heads=6, intermediate_size=1536
    )
    return made(hf.CLIPVisionModel(config), _image(224))


def swin_v2_tiny() -> Made:
    """Swin v2: cosine attention and continuous position biases."""
    return made(hf.Swinv2ForImageClassification(hf.Swinv2Config(window_size=7)), _image(224))


def mobilevit_small() -> Made:
    """MobileViT: depthwise convolutions, and attention over unfolded patches."""
    return made(hf.MobileViTForImageClassification(hf.MobileViTConfig()), _image(256))


def poolformer_s12() -> Made:
    """PoolFormer: average pooling in the place of attention, group normalisation."""
    return made(hf.PoolFormerForImageClassification(hf.PoolFormerConfig()), _image(224))


def levit_128s() -> Made:
    """LeViT: convolutions, then attention with learnt biases."""
    config = hf.LevitConfig(
        hidden_sizes=[128, 256, 384],
        num_attention_heads=[4, 6, 8],
        depths=[2, 3, 4],
        key_dim=[16, 16, 16],
    )
    return made(hf.LevitForImageClassification(config), _image(224))


def convnextv2_atto() -> Made:
    """ConvNeXt v2: global response normalisation."""
    config = hf.ConvNextV2Config(hidden_sizes=[40, 80, 160, 320], depths=[2, 2, 6, 2])
    return made(hf.ConvNextV2ForImageClassification(config), _image(224))


def segformer_b0() -> Made:
    """SegFormer-B0."""
    return made(hf.SegformerForSemanticSegmentation(hf.SegformerConfig()), _image(256))


def upernet_convnext() -> Made:
    """UPerNet on a small ConvNeXt: pyramid pooling and bilinear resizes."""
    backbone = hf.ConvNextConfig(
        hidden_sizes=[40, 80, 160, 320],
        depths=[2, 2, 6, 2],
        out_features=["stage1", "stage2", "stage3", "stage4"],
    )
    config = hf.UperNetConfig(
        backbone_config=backbone, hidden_size=64, use_auxiliary_head=False, num_labels=21
    )
    return made(hf.UperNetForSemanticSegmentation(config), _image(224))


def detr_resnet18() -> Made:
    """DETR with a ResNet-18, three layers on each side; boxes and classes."""
    backbone = hf.ResNetConfig(
        depths=[2, 2, 2, 2],
        hidden_sizes=[64, 128, 256, 512],
        layer_type="basic",
        out_features=["stage4"],
    )
    config = hf.DetrConfig(
        backbone_config=backbone,
        use_timm_backbone=False,
        backbone=None,
        encoder_layers=3,
        decoder_layers=3,
        encoder_ffn_dim=1024,
        decoder_ffn_dim=1024,
    )
    return made(hf.DetrForObjectDetection(config), _image(256))


def yolos_tiny() -> Made:
    """YOLOS: a transformer of 192 with 100 tokens for boxes."""
    config = hf.YolosConfig(
        hidden_size=192,
        num_hidden_layers=12,
        num_attention_heads=3,
        intermediate_size=768,
        image_size=[256, 256],
    )
    return made(hf.YolosForObjectDetection(config), _image(256))


def swin2sr() -> Made:
    """Swin2SR: twice the resolution by attention within windows."""
    config = hf.Swin2SRConfig(
        embed_dim=60, depths=[2, 2], num_heads=[6, 6], window_size=8, upscale=2
    )
    return made(hf.Swin2SRForImageSuperResolution(config), _image(64))
