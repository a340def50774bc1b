"""Every family of networks of torch, and those that are refused."""

import torch

from .torch_arithmetic import ELEMENTWISE, PRODUCTS, REDUCTIONS
from .torch_complex import COMPLEX
from .torch_idioms import IDIOMS
from .torch_images import IMAGES
from .torch_indexing import INDEXING, MOVES
from .torch_layers import CONVOLUTIONS, NORMALISATIONS
from .torch_networks import of, r
from .torch_samples import SAMPLES
from .torch_sequences import SEQUENCES

FAMILIES = {
    "convolutions": CONVOLUTIONS,
    "normalisations": NORMALISATIONS,
    "element-wise": ELEMENTWISE,
    "reductions": REDUCTIONS,
    "indexing": INDEXING,
    "moves": MOVES,
    "images": IMAGES,
    "sequences": SEQUENCES,
    "products": PRODUCTS,
    "complex": COMPLEX,
    "idioms": IDIOMS,
    "samples": SAMPLES,
}

REFUSED = {
    "as_strided": lambda: of(lambda x: x[:, :, ::2].as_strided((4, 5), (5, 1)), r(1, 2, 4, 5)),
    "sum": lambda: of(lambda x: torch.masked_select(x, x > 0).sum(), r(3)),
    "_to_copy": lambda: of(lambda x: x.bfloat16() * 2, r(3)),
    "mode": lambda: of(lambda x: x.mode(1).values, r(2, 6)),
    "cumprod": lambda: of(
        lambda x: torch.view_as_real(torch.view_as_complex(x).cumprod(0)), r(3, 2)
    ),
    "repeat_interleave": lambda: of(
        lambda x: torch.repeat_interleave(x, torch.tensor([1, 2, 1]), dim=0, output_size=4), r(3, 2)
    ),
}
"""By the operator that a refusal has to name."""
