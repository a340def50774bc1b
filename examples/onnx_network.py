"""Write the network of ``torch_network.py`` as an ONNX file: ``onnx_network.py net.onnx``.

Needs the packages onnx and onnxscript.
"""

import sys

import torch
from torch_network import make


def main(file: str) -> None:
    """Export the network to a file."""
    network, inputs = make()
    exported = torch.onnx.export(network, inputs, input_names=["input"], dynamo=True)
    if exported is not None:
        exported.save(file)


if __name__ == "__main__":
    main(sys.argv[1])
