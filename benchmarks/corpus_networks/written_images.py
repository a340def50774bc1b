"""Networks for images, video and points, written as their papers describe them."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from corpus_networks.making import Made, made


def _convolved(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)
    )


class UNet(nn.Module):
    """U-Net (Ronneberger et al. 2015) with transposed convolutions on the way up."""

    def __init__(self, width: int = 16, depth: int = 3, classes: int = 2) -> None:
        super().__init__()
        widths = [width << level for level in range(depth + 1)]
        self.down = nn.ModuleList(
            nn.Sequential(_convolved(before, after), _convolved(after, after))
            for before, after in zip([3, *widths[:-1]], widths, strict=True)
        )
        pairs = list(zip(widths[::-1], widths[-2::-1], strict=False))
        self.rise = nn.ModuleList(
            nn.ConvTranspose2d(before, after, 2, stride=2) for before, after in pairs
        )
        self.up = nn.ModuleList(
            nn.Sequential(_convolved(before, after), _convolved(after, after))
            for before, after in pairs
        )
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        kept = []
        for level, block in enumerate(self.down):
            image = block(functional.max_pool2d(image, 2) if level else image)
            kept.append(image)
        for rise, block, skipped in zip(self.rise, self.up, kept[-2::-1], strict=True):
            image = block(torch.cat([skipped, rise(image)], dim=1))
        found: torch.Tensor = self.head(image)
        return found


def unet() -> Made:
    """A U-Net of four levels."""
    return made(UNet(), torch.randn(1, 3, 128, 128))


class DiffusionUNet(nn.Module):
    """A denoiser: group normalisation, SiLU, an embedded time step, attention in the middle."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.width = width
        self.time = nn.Sequential(
            nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, 2 * width)
        )
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.down = nn.Sequential(
            nn.GroupNorm(8, width), nn.SiLU(), nn.Conv2d(width, 2 * width, 3, 2, 1)
        )
        self.middle = nn.Sequential(
            nn.GroupNorm(8, 2 * width), nn.SiLU(), nn.Conv2d(2 * width, 2 * width, 3, 1, 1)
        )
        self.norm = nn.GroupNorm(8, 2 * width)
        self.attention = nn.MultiheadAttention(2 * width, 4, batch_first=True)
        self.up = nn.Conv2d(2 * width, width, 3, padding=1)
        self.head = nn.Sequential(
            nn.GroupNorm(8, 2 * width), nn.SiLU(), nn.Conv2d(2 * width, 3, 3, 1, 1)
        )

    def forward(self, image: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
        rates = torch.exp(torch.arange(self.width // 2, device=image.device) * -0.5)
        angles = step[:, None] * rates
        time = self.time(torch.cat([angles.sin(), angles.cos()], dim=1))
        first = self.stem(image)
        low = self.down(first)
        low = low + self.middle(low + time[:, :, None, None])
        tokens = self.norm(low).flatten(2).transpose(1, 2)
        attended = self.attention(tokens, tokens, tokens, need_weights=False)[0]
        low = low + attended.transpose(1, 2).reshape(low.shape)
        high = self.up(functional.interpolate(low, scale_factor=2.0, mode="nearest"))
        found: torch.Tensor = self.head(torch.cat([high, first], dim=1))
        return found


def diffusion_unet() -> Made:
    """A small denoiser of images of 32 x 32, with two inputs."""
    return made(DiffusionUNet(), torch.randn(1, 3, 32, 32), torch.rand(1))


def espcn() -> Made:
    """ESPCN (Shi et al. 2016): three times the resolution by a pixel shuffle."""
    network = nn.Sequential(
        nn.Conv2d(1, 64, 5, padding=2),
        nn.Tanh(),
        nn.Conv2d(64, 32, 3, padding=1),
        nn.Tanh(),
        nn.Conv2d(32, 9, 3, padding=1),
        nn.PixelShuffle(3),
    )
    return made(network, torch.randn(1, 1, 128, 128))


class EDSR(nn.Module):
    """EDSR (Lim et al. 2017), its small form."""

    def __init__(self, width: int = 64, blocks: int = 8) -> None:
        super().__init__()
        self.head = nn.Conv2d(3, width, 3, padding=1)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(width, width, 3, padding=1),
                nn.ReLU(),
                nn.Conv2d(width, width, 3, padding=1),
            )
            for _ in range(blocks)
        )
        self.tail = nn.Sequential(
            nn.Conv2d(width, 4 * width, 3, padding=1),
            nn.PixelShuffle(2),
            nn.Conv2d(width, 3, 3, padding=1),
        )

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        first = image = self.head(image)
        for block in self.blocks:
            image = image + 0.1 * block(image)
        found: torch.Tensor = self.tail(image + first)
        return found


def edsr() -> Made:
    """EDSR of eight blocks on a tile of 64 x 64."""
    return made(EDSR(), torch.randn(1, 3, 64, 64))


class StyleTransfer(nn.Module):
    """Fast neural style (Johnson et al. 2016): reflected edges, instance normalisation."""

    def __init__(self, width: int = 16, blocks: int = 3) -> None:
        super().__init__()

        def layer(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Sequential:
            return nn.Sequential(
                nn.ReflectionPad2d(kernel // 2),
                nn.Conv2d(inputs, outputs, kernel, stride),
                nn.InstanceNorm2d(outputs, affine=True),
            )

        self.down = nn.Sequential(
            layer(3, width, 9),
            nn.ReLU(),
            layer(width, 2 * width, 3, 2),
            nn.ReLU(),
            layer(2 * width, 4 * width, 3, 2),
            nn.ReLU(),
        )
        self.blocks = nn.ModuleList(
            nn.Sequential(layer(4 * width, 4 * width, 3), nn.ReLU(), layer(4 * width, 4 * width, 3))
            for _ in range(blocks)
        )
        self.up = nn.Sequential(
            nn.Upsample(scale_factor=2, mode="bilinear"),
            layer(4 * width, 2 * width, 3),
            nn.ReLU(),
            nn.Upsample(scale_factor=2, mode="bilinear"),
            layer(2 * width, width, 3),
            nn.ReLU(),
            nn.Conv2d(width, 3, 9, padding=4),
        )

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        image = self.down(image)
        for block in self.blocks:
            image = image + block(image)
        found: torch.Tensor = self.up(image)
        return found


def style_transfer() -> Made:
    """A style network of half the usual width."""
    return made(StyleTransfer(), torch.randn(1, 3, 128, 128))


def dcgan_generator() -> Made:
    """DCGAN's generator (Radford et al. 2016): transposed convolutions of 4 x 4."""
    layers: list[nn.Module] = [nn.ConvTranspose2d(100, 256, 4, bias=False)]
    for before, after in ((256, 128), (128, 64), (64, 32)):
        layers += [
            nn.BatchNorm2d(before),
            nn.ReLU(),
            nn.ConvTranspose2d(before, after, 4, 2, 1, bias=False),
        ]
    layers += [nn.BatchNorm2d(32), nn.ReLU(), nn.ConvTranspose2d(32, 3, 4, 2, 1), nn.Tanh()]
    return made(nn.Sequential(*layers), torch.randn(1, 100, 1, 1))


class SpatialTransformer(nn.Module):
    """A spatial transformer (Jaderberg et al. 2015): samples where it says itself."""

    def __init__(self) -> None:
        super().__init__()
        self.place = nn.Sequential(
            nn.Conv2d(1, 8, 7), nn.MaxPool2d(2), nn.ReLU(), nn.Conv2d(8, 10, 5), nn.MaxPool2d(2)
        )
        self.affine = nn.Sequential(nn.Linear(10 * 12 * 12, 32), nn.ReLU(), nn.Linear(32, 6))
        self.features = nn.Sequential(
            nn.Conv2d(1, 32, 5), nn.MaxPool2d(2), nn.ReLU(), nn.Conv2d(32, 64, 5), nn.ReLU()
        )
        self.head = nn.Linear(64, 10)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        matrix = self.affine(self.place(image).flatten(1)).view(-1, 2, 3)
        grid = functional.affine_grid(matrix, list(image.shape), align_corners=False)
        straight = functional.grid_sample(image, grid, align_corners=False)
        found: torch.Tensor = self.head(self.features(straight).mean((2, 3)))
        return found


def spatial_transformer() -> Made:
    """A spatial transformer on images of 64 x 64."""
    return made(SpatialTransformer(), torch.randn(1, 1, 64, 64))


class MixerBlock(nn.Module):
    """A block of MLP-Mixer: across patches, then across channels."""

    def __init__(self, patches: int, width: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.across = nn.Sequential(
            nn.Linear(patches, 2 * patches), nn.GELU(), nn.Linear(2 * patches, patches)
        )
        self.within = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        tokens = tokens + self.across(self.norms[0](tokens).transpose(1, 2)).transpose(1, 2)
        found: torch.Tensor = tokens + self.within(self.norms[1](tokens))
        return found


class Mixer(nn.Module):
    """MLP-Mixer (Tolstikhin et al. 2021)."""

    def __init__(self, width: int = 256, blocks: int = 8, patches: int = 196) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 16, 16)
        self.blocks = nn.Sequential(*(MixerBlock(patches, width) for _ in range(blocks)))
        self.head = nn.Linear(width, 1000)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        tokens = self.blocks(self.stem(image).flatten(2).transpose(1, 2))
        found: torch.Tensor = self.head(tokens.mean(1))
        return found


def mlp_mixer() -> Made:
    """An MLP-Mixer: 8 blocks of 256 on patches of 16."""
    return made(Mixer(), torch.randn(1, 3, 224, 224))


def video_conv3d() -> Made:
    """A small network of two conv3d."""
    network = nn.Sequential(
        nn.Conv3d(3, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool3d((1, 2, 2)),
        nn.Conv3d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool3d(1),
        nn.Flatten(),
        nn.Linear(32, 10),
    )
    return made(network, torch.randn(1, 3, 8, 32, 32))


def pointnet() -> Made:
    """PointNet (Qi et al. 2017) without its transforms: conv1d of one tap, and a maximum."""
    layers: list[nn.Module] = []
    for before, after in ((3, 64), (64, 64), (64, 128), (128, 1024)):
        layers += [nn.Conv1d(before, after, 1), nn.BatchNorm1d(after), nn.ReLU()]
    network = nn.Sequential(
        *layers,
        nn.AdaptiveMaxPool1d(1),
        nn.Flatten(),
        nn.Linear(1024, 256),
        nn.ReLU(),
        nn.Linear(256, 40),
    )
    return made(network, torch.randn(1, 3, 1024))
