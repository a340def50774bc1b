"""A network as an ONNX file: `python -m corpus_networks.export MODULE:FUNCTION FILE`."""

from __future__ import annotations

import importlib
import sys

import torch


def main(source: str, file: str) -> None:
    """Export as torch does by itself, weights inside the file."""
    module, _, function = source.partition(":")
    torch.manual_seed(0)
    network, inputs = getattr(importlib.import_module(f"corpus_networks.{module}"), function)()
    torch.onnx.export(network, inputs, file, dynamo=True, external_data=False, verbose=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
