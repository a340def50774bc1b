"""Ten operators as other people write them, with TVM alone: none of them has a template."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import te, tirx, topi

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


def attention_scores() -> Any:
    """Softmax of scaled products of queries and keys, for every head."""
    query = te.placeholder((4, 64, 32), FLOAT, name="query")
    key = te.placeholder((4, 64, 32), FLOAT, name="key")
    d = te.reduce_axis((0, 32), name="d")
    scores = te.compute(
        (4, 64, 64), lambda h, i, j: te.sum(query[h, i, d] * key[h, j, d], axis=d), name="scores"
    )
    return te.create_prim_func([query, key, topi.nn.softmax(scores, axis=-1)])


def biased_gelu() -> Any:
    """Products of a batch of matrices with a bias and GELU."""
    a = te.placeholder((4, 32, 64), FLOAT, name="a")
    b = te.placeholder((4, 64, 48), FLOAT, name="b")
    bias = te.placeholder((48,), FLOAT, name="bias")
    k = te.reduce_axis((0, 64), name="k")
    product = te.compute(
        (4, 32, 48), lambda n, i, j: te.sum(a[n, i, k] * b[n, k, j], axis=k), name="product"
    )
    biased = te.compute((4, 32, 48), lambda n, i, j: product[n, i, j] + bias[j], name="biased")
    out = te.compute(
        (4, 32, 48),
        lambda n, i, j: 0.5 * biased[n, i, j] * (1.0 + te.erf(biased[n, i, j] * 0.70710678)),
        name="out",
    )
    return te.create_prim_func([a, b, bias, out])


def layer_norm() -> Any:
    """Normalised rows with scale and shift."""
    x = te.placeholder((64, 256), FLOAT, name="x")
    scale = te.placeholder((256,), FLOAT, name="scale")
    shift = te.placeholder((256,), FLOAT, name="shift")
    k = te.reduce_axis((0, 256), name="k")
    sums = te.compute((64,), lambda i: te.sum(x[i, k], axis=k), name="sums")
    r = te.reduce_axis((0, 256), name="r")
    squares = te.compute(
        (64,),
        lambda i: te.sum((x[i, r] - sums[i] / 256.0) * (x[i, r] - sums[i] / 256.0), axis=r),
        name="squares",
    )
    out = te.compute(
        (64, 256),
        lambda i, j: (
            (x[i, j] - sums[i] / 256.0) * te.rsqrt(squares[i] / 256.0 + 1e-5) * scale[j] + shift[j]
        ),
        name="out",
    )
    return te.create_prim_func([x, scale, shift, out])


def group_norm() -> Any:
    """Normalised groups of channels, as TVM's library has it."""
    x = te.placeholder((2, 32, 14, 14), FLOAT, name="x")
    scale = te.placeholder((32,), FLOAT, name="scale")
    shift = te.placeholder((32,), FLOAT, name="shift")
    out = topi.nn.group_norm(x, scale, shift, 8, 1, [2, 3], 1e-5)
    return te.create_prim_func([x, scale, shift, out])


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


def prefix_sums() -> Any:
    """A scan: the sum of every row up to each place, of exponentials, divided by the last one."""
    x = te.placeholder((32, 128), FLOAT, name="x")
    raised = te.compute((32, 128), lambda i, j: te.exp(x[i, j]), name="raised")
    k = te.reduce_axis((0, 128), name="k")
    zero = tirx.const(0.0, FLOAT)
    sums = te.compute(
        (32, 128),
        lambda i, j: te.sum(tirx.if_then_else(k <= j, raised[i, k], zero), axis=k),
        name="sums",
    )
    out = te.compute((32, 128), lambda i, j: sums[i, j] / sums[i, 127], name="out")
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


OPERATORS: tuple[Callable[[], Any], ...] = (
    softmax,
    matmul_softmax,
    attention_scores,
    biased_gelu,
    layer_norm,
    group_norm,
    log_sum_exp,
    row_norms,
    prefix_sums,
    largest_place,
)
