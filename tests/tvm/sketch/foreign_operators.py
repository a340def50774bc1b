"""Operators as other people write them, with TVM alone: none of them has a template."""

from typing import Any

from tvm import te, topi

FLOAT = "float32"


def softmax() -> Any:
    """Softmax of rows, as TVM's library has it."""
    x = te.placeholder((64, 256), FLOAT, name="x")
    return te.create_prim_func([x, topi.nn.softmax(x, axis=-1)])


def matmul_softmax() -> Any:
    """Softmax of a matrix product's rows, as one function."""
    data = te.placeholder((64, 128), FLOAT, name="data")
    weights = te.placeholder((128, 96), FLOAT, name="weights")
    k = te.reduce_axis((0, 128), name="k")
    logits = te.compute(
        (64, 96), lambda m, n: te.sum(data[m, k] * weights[k, n], axis=k), name="logits"
    )
    return te.create_prim_func([data, weights, _softmax_of_rows(logits)])


def log_sum_exp() -> Any:
    """The logarithm of every row's sum of exponentials."""
    x = te.placeholder((128, 512), FLOAT, name="x")
    k = te.reduce_axis((0, 512), name="k")
    top = te.compute((128,), lambda i: te.max(x[i, k], axis=k), name="top")
    r = te.reduce_axis((0, 512), name="r")
    total = te.compute((128,), lambda i: te.sum(te.exp(x[i, r] - top[i]), axis=r), name="total")
    out = te.compute((128,), lambda i: te.log(total[i]) + top[i], name="out")
    return te.create_prim_func([x, out])


def row_norms() -> Any:
    """The length of every row."""
    x = te.placeholder((96, 1024), FLOAT, name="x")
    k = te.reduce_axis((0, 1024), name="k")
    squares = te.compute((96,), lambda i: te.sum(x[i, k] * x[i, k], axis=k), name="squares")
    out = te.compute((96,), lambda i: te.sqrt(squares[i]), name="out")
    return te.create_prim_func([x, out])


def largest_place() -> Any:
    """The place of every row's largest element, as TVM's library has it."""
    x = te.placeholder((64, 512), FLOAT, name="x")
    return te.create_prim_func([x, topi.argmax(x, axis=1)])


def _softmax_of_rows(logits: Any) -> Any:
    rows, columns = (int(extent) for extent in logits.shape)
    c = te.reduce_axis((0, columns), name="c")
    top = te.compute((rows,), lambda m: te.max(logits[m, c], axis=c), name="top")
    raised = te.compute((rows, columns), lambda m, n: te.exp(logits[m, n] - top[m]), name="raised")
    d = te.reduce_axis((0, columns), name="d")
    total = te.compute((rows,), lambda m: te.sum(raised[m, d], axis=d), name="total")
    return te.compute((rows, columns), lambda m, n: raised[m, n] / total[m], name="out")
