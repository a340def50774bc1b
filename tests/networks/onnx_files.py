"""ONNX files of networks that are written as text."""

import onnx


def onnx_file(path, text, *, opsets='"" : 18', **weights):
    """Write a network.

    Args:
        path: the file.
        text: inputs, outputs and nodes as ONNX's parser reads them, such as
            ``(float[n, 4] x) => (float[n, 4] y) { [last] y = Relu(x) }``.
        opsets: versions of domains.
        weights: constants that the nodes read.
    """
    model = onnx.parser.parse_model(f"<ir_version: 9, opset_import: [{opsets}]> net {text}")
    for name, array in weights.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    onnx.save(model, path)
    return path
