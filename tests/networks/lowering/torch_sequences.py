"""Recurrent networks and attention of torch."""

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everywhere

from .torch_networks import Cells, Mask, SelfAttention, Whole, net, of, r

_LSTM = nn.LSTM(5, 6).eval().requires_grad_(requires_grad=False)


def _encoder_operator(*mask, gelu=False, norm_first=False, kind=None):
    """The operator that ``nn.TransformerEncoderLayer`` calls in inference."""
    shapes = (24, 8), (24,), (8, 8), (8,), *[(8,)] * 4, (16, 8), (16,), (8, 16), (8,)
    weights = [r(*shape) for shape in shapes]

    def layer(x, mask=None):
        options = *weights[:4], gelu, norm_first, 1e-5, *weights[4:], mask, kind
        return torch._transformer_encoder_layer_fwd(x, 8, 2, *options)

    return of(layer, r(2, 5, 8), *mask)


# Layers of 5 or 6 units are unrolled: two steps show what a step hands to the next one, and more
# take longer to compile. Batches have another size, so that the two axes cannot be confused.
SEQUENCES = {
    "lstm two layers both ways": lambda: net(
        nn.LSTM(5, 6, num_layers=2, bidirectional=True, batch_first=True), r(3, 2, 5)
    ),
    "lstm projected": lambda: net(nn.LSTM(5, 6, proj_size=3), r(2, 3, 5)),
    "lstm with state": lambda: of(
        lambda x, h, c: _LSTM(x, (h, c))[0], r(2, 3, 5), r(1, 3, 6), r(1, 3, 6)
    ),
    "gru": lambda: net(nn.GRU(5, 6), r(2, 3, 5)),
    "gru two layers both ways": lambda: net(
        nn.GRU(5, 6, num_layers=2, bidirectional=True, batch_first=True), r(3, 2, 5)
    ),
    "rnn": lambda: net(nn.RNN(5, 6, nonlinearity="relu"), r(2, 3, 5)),
    "lstm in one kernel": lambda: net(
        Whole(nn.LSTM(5, 48, num_layers=2, bidirectional=True, batch_first=True)), r(2, 7, 5)
    ),
    "gru in one kernel": lambda: net(Whole(nn.GRU(5, 16, bidirectional=True)), r(7, 6, 5)),
    "rnn in one kernel": lambda: net(Whole(nn.RNN(5, 8, bias=False)), r(7, 1, 5)),
    "lstm cell": lambda: net(Cells(nn.LSTMCell), r(2, 3, 5)),
    "gru cell": lambda: net(Cells(nn.GRUCell), r(2, 3, 5)),
    "attention": lambda: of(
        F.scaled_dot_product_attention, r(1, 2, 6, 4), r(1, 2, 5, 4), r(1, 2, 5, 4)
    ),
    "attention causal": lambda: of(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.3),
        *(r(1, 2, 6, 4) for _ in range(3)),
    ),
    "attention bool mask": lambda: of(
        F.scaled_dot_product_attention,
        *(r(1, 2, 6, 4) for _ in range(3)),
        torch.rand(1, 1, 6, 6) > 0.3,
    ),
    "attention float mask": lambda: of(
        F.scaled_dot_product_attention, *(r(1, 2, 6, 4) for _ in range(3)), r(1, 1, 6, 6)
    ),
    "attention grouped": lambda: of(
        F.scaled_dot_product_attention, r(1, 4, 6, 4), r(1, 2, 6, 4), r(1, 2, 6, 4), enable_gqa=True
    ),
    "attention three axes": lambda: of(
        F.scaled_dot_product_attention, r(2, 6, 4), r(2, 5, 4), r(2, 5, 4)
    ),
    "attention by hand": lambda: net(Mask(), *(r(1, 2, 6, 4) for _ in range(3))),
    "multihead": lambda: net(SelfAttention(weights=False), r(2, 5, 8)),
    "multihead weights": lambda: net(SelfAttention(weights=True), r(2, 5, 8)),
    "encoder layer": lambda: net(
        nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), r(2, 5, 8)
    ),
    "encoder operator": lambda: _encoder_operator(norm_first=True),
    "encoder operator masked": lambda: _encoder_operator(torch.ones(5, 5).triu(1) > 0, kind=0),
    # The second sequence has no column, so torch gives NaN.
    "encoder operator padded": lambda: _encoder_operator(
        torch.tensor([[0, 0, 0, 0, 1], [1, 1, 1, 1, 1]]) > 0, gelu=True, kind=1
    ),
    "encoder operator of heads": lambda: _encoder_operator(r(2, 2, 5, 5) > 1.0, kind=2),
    "decoder layer": lambda: net(
        nn.TransformerDecoderLayer(8, 2, 16, batch_first=True), r(2, 5, 8), r(2, 4, 8)
    ),
    "rotary": lambda: of(
        lambda x, c, s: x * c + torch.cat((-x[..., 2:], x[..., :2]), -1) * s,
        r(1, 2, 5, 4),
        r(1, 1, 5, 4),
        r(1, 1, 5, 4),
    ),
}
