"""torchvision's networks: classification, segmentation, backbones of detectors, video."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from corpus_networks.making import Made, made
from corpus_networks.torchvision_library import torchvision_models


def _classifier(name: str, size: int = 224, batch: int = 1, **options: Any) -> Made:
    network = getattr(torchvision_models(), name)(weights=None, **options)
    return made(network, torch.randn(batch, 3, size, size))


def alexnet() -> Made:
    """AlexNet: 11x11 and 5x5 convolutions, and matrix products with 38 million weights."""
    return _classifier("alexnet")


def vgg11() -> Made:
    """VGG-11."""
    return _classifier("vgg11")


def resnet18() -> Made:
    """ResNet-18."""
    return _classifier("resnet18")


def resnet18_batch_8() -> Made:
    """ResNet-18 on eight images."""
    return _classifier("resnet18", batch=8)


def resnet50() -> Made:
    """ResNet-50."""
    return _classifier("resnet50")


def resnext50_32x4d() -> Made:
    """ResNeXt-50: convolutions of 32 groups."""
    return _classifier("resnext50_32x4d")


def wide_resnet50_2() -> Made:
    """Wide ResNet-50."""
    return _classifier("wide_resnet50_2")


def densenet121() -> Made:
    """DenseNet-121: a concatenation after every layer."""
    return _classifier("densenet121")


def googlenet() -> Made:
    """GoogLeNet: four branches and a concatenation in each block."""
    return _classifier("googlenet", init_weights=False)


def inception_v3() -> Made:
    """Inception-v3: 1x7 and 7x1 convolutions."""
    return _classifier("inception_v3", size=299, init_weights=False)


def squeezenet1_1() -> Made:
    """SqueezeNet 1.1."""
    return _classifier("squeezenet1_1")


def shufflenet_v2() -> Made:
    """ShuffleNet v2: channels are split and shuffled."""
    return _classifier("shufflenet_v2_x1_0")


def mobilenet_v2() -> Made:
    """MobileNet-V2."""
    return _classifier("mobilenet_v2")


def mobilenet_v3_large() -> Made:
    """MobileNet-V3 large: 5x5 depthwise convolutions, squeeze-and-excitation, hard swish."""
    return _classifier("mobilenet_v3_large")


def mnasnet() -> Made:
    """MNASNet 1.0."""
    return _classifier("mnasnet1_0")


def efficientnet_b0() -> Made:
    """EfficientNet-B0: SiLU and squeeze-and-excitation."""
    return _classifier("efficientnet_b0")


def regnet_y_400mf() -> Made:
    """RegNetY-400MF: grouped convolutions and squeeze-and-excitation."""
    return _classifier("regnet_y_400mf")


def convnext_tiny() -> Made:
    """ConvNeXt-T: 7x7 depthwise convolutions, layer normalisation, GELU."""
    return _classifier("convnext_tiny")


def swin_t() -> Made:
    """Swin-T: attention within shifted windows."""
    return _classifier("swin_t")


def maxvit_t() -> Made:
    """MaxViT-T: blocked and grid attention between inverted bottlenecks."""
    return _classifier("maxvit_t")


def vit_b_32() -> Made:
    """ViT-B/32 as torchvision writes it, with ``nn.MultiheadAttention``."""
    network, inputs = _classifier("vit_b_32")
    head: Any = network.heads
    nn.init.normal_(head.head.weight, std=0.02)  # zeros before training: nothing to check by
    return network, inputs


class _Output(nn.Module):
    """A segmentation network whose output is one tensor."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.network(image)["out"]
        return output


def _segmenter(name: str, size: int) -> Made:
    make = getattr(torchvision_models().segmentation, name)
    network = make(weights=None, weights_backbone=None, num_classes=21)
    return made(_Output(network), torch.randn(1, 3, size, size))


def lraspp_mobilenet_v3() -> Made:
    """LR-ASPP on MobileNet-V3: bilinear resizes."""
    return _segmenter("lraspp_mobilenet_v3_large", 320)


def deeplabv3_mobilenet_v3() -> Made:
    """DeepLab-V3 on MobileNet-V3: dilated convolutions."""
    return _segmenter("deeplabv3_mobilenet_v3_large", 256)


def fcn_resnet50() -> Made:
    """FCN on ResNet-50 with dilation in its last stages."""
    return _segmenter("fcn_resnet50", 224)


def _backbone(name: str, size: int) -> Made:
    make = getattr(torchvision_models().detection, name)
    network = make(weights=None, weights_backbone=None).backbone
    return made(network, torch.randn(1, 3, size, size))


def retinanet_backbone() -> Made:
    """RetinaNet's ResNet-50 with its feature pyramid; five outputs."""
    return _backbone("retinanet_resnet50_fpn", 256)


def fasterrcnn_mobilenet_backbone() -> Made:
    """Faster R-CNN's MobileNet-V3 with its feature pyramid, batch normalisation frozen."""
    return _backbone("fasterrcnn_mobilenet_v3_large_320_fpn", 320)


def ssdlite_backbone() -> Made:
    """SSDLite's MobileNet-V3; six outputs."""
    return _backbone("ssdlite320_mobilenet_v3_large", 320)


def r3d_18() -> Made:
    """R3D-18: three-dimensional convolutions over eight frames."""
    network = torchvision_models().video.r3d_18(weights=None)
    return made(network, torch.randn(1, 3, 8, 112, 112))


def r2plus1d_18() -> Made:
    """R(2+1)D-18: 1x3x3 and 3x1x1 convolutions over eight frames."""
    network = torchvision_models().video.r2plus1d_18(weights=None)
    return made(network, torch.randn(1, 3, 8, 112, 112))
