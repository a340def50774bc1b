"""A network of torch whose inputs have an open length, with a mask, in buckets of lengths."""

from chameleon_networks._frontends.bucketed import BucketedFrontend, make_frontend
from chameleon_networks._importers.options import TorchOptions
from chameleon_networks._shapes import Buckets

NETWORK = """
import torch


class Masked(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(100, 16)
        self.hidden = torch.nn.Linear(16, 32)
        self.head = torch.nn.Linear(32, 8)

    def forward(self, ids, mask=None):
        hidden = torch.relu(self.hidden(self.embedding(ids)))
        mask = mask[..., None]
        return hidden, self.head((hidden * mask).sum(1) / (mask.sum(1) + 1))


def masked():
    torch.manual_seed(0)
    return Masked(), ((torch.full((1, 6), 99),), {"mask": torch.ones(1, 6)})
"""


def masked(file, *extents, pad=0.0):
    """The network of a file that holds ``NETWORK``, in buckets of these lengths."""
    return masked_along(file, Buckets(buckets=extents, pad=pad, name="length"))


def masked_along(file, length):
    """The network of a file that holds ``NETWORK``, with an axis for lengths."""
    shapes = {"ids": (1, length), "mask": (1, length)}
    frontend = make_frontend(TorchOptions(source=f"{file}:masked", shapes=shapes, compare=False))
    assert isinstance(frontend, BucketedFrontend)
    return frontend
