"""A network of one's own for `chameleon run examples/torch_network.yaml`."""

import torch


class Residual(torch.nn.Module):
    """Two convolutions around which the input is carried."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = torch.nn.Sequential(
            torch.nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            torch.nn.BatchNorm2d(channels),
            torch.nn.ReLU(),
            torch.nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            torch.nn.BatchNorm2d(channels),
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """(n, channels, height, width) to the same."""
        return torch.relu(images + self.body(images))


def make() -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    """The module and its example inputs, whose shapes are those it is compiled for."""
    torch.manual_seed(0)
    network = torch.nn.Sequential(
        torch.nn.Conv2d(3, 64, 3, stride=2, padding=1),
        torch.nn.ReLU(),
        Residual(64),
        Residual(64),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
        torch.nn.Linear(64, 10),
    )
    return network.eval(), (torch.zeros(1, 3, 64, 64),)
