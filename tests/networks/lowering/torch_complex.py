"""Complex numbers and Fourier transforms of torch."""

import torch
from torch.nn import functional as F  # noqa: N812 - as everywhere

from .torch_networks import Rotary, SpectralConvolution, net, of, r


def _complex(x, y):
    """Arithmetic of complex numbers."""
    z, w = torch.complex(x, y).to(x.device), torch.complex(y, x * 2)
    both = torch.cat([z, w.conj(), x.to(torch.complex64)], 0)
    product = (z @ w.T) / (3 + 2j) - 1j * z[:, :3]
    parts = [both, product, z / w, torch.exp(z), z**3, torch.where(x > 0, z, w)]
    sizes = [z.abs(), w.angle(), torch.stack([z, w]).sum(0).real, z.reciprocal().imag]
    return [torch.view_as_real(part.resolve_conj()) for part in parts] + sizes


def _functions(x, y):
    """Powers, comparisons, norms, and numbers made of constants."""
    z = torch.complex(x, y)
    same = torch.where(x > y, z, 0j)
    parts = [z**-2, z**2.0, z.log(), z.sqrt(), torch.addmm(z, z, z.mT, beta=2, alpha=0.5)]
    parts += [z.masked_fill(x > 0, 2 + 1j), same, z.sgn()]
    parts += [z / x.relu(), z / torch.complex(x.relu(), y.relu()), z / (y / x.relu())]
    real = [
        same == z,
        same != z,
        torch.where(x > 0, z, torch.nan).isnan(),
        torch.linalg.vector_norm(z, dim=1),
    ]
    return [*map(torch.view_as_real, parts), *real, torch.fft.fft(x).conj().imag + 1]


def _spectrogram(x):
    return torch.stft(x, 16, 4, window=torch.hann_window(16), return_complex=True).abs()


def _padded(x):
    """Images of complex numbers, padded in each way."""
    z = torch.view_as_complex(x)
    ways = ("constant", "reflect", "replicate", "circular")
    every = [F.pad(z, (1, 2, 0, 1), mode=way) for way in ways]
    return list(map(torch.view_as_real, [*every, F.pad(z, (-1, 2), value=3.0)]))


COMPLEX = {
    "padded": lambda: of(_padded, r(1, 2, 3, 4, 2)),
    "rotary": lambda: net(Rotary(), r(2, 5, 2, 6)),
    "arithmetic": lambda: of(_complex, r(3, 3), r(3, 3)),
    "functions": lambda: of(_functions, r(3, 3), r(3, 3)),
    "fft2": lambda: of(lambda x: torch.fft.fft2(x, dim=(1, 2)).real, r(2, 6, 8)),
    "ifft": lambda: of(
        lambda x: torch.view_as_real(torch.fft.ifft(torch.view_as_complex(x), dim=0)), r(5, 3, 2)
    ),
    "rfft orthonormal": lambda: of(
        lambda x: torch.view_as_real(torch.fft.rfft2(x, norm="ortho")), r(2, 6, 7)
    ),
    "irfft even": lambda: of(
        lambda x: torch.fft.irfft(torch.view_as_complex(x), norm="forward"), r(3, 5, 2)
    ),
    "irfft odd": lambda: of(lambda x: torch.fft.irfft(torch.view_as_complex(x), n=7), r(3, 4, 2)),
    "filter": lambda: of(
        lambda x: torch.fft.irfft2(torch.fft.rfft2(x) * 0.5, s=(6, 7)), r(2, 6, 7)
    ),
    "mixed frequencies": lambda: of(
        lambda x, w: torch.fft.irfft2(
            torch.einsum("bixy,ioxy->boxy", torch.fft.rfft2(x), torch.view_as_complex(w))
        ),
        r(1, 3, 4, 4),
        r(3, 5, 4, 3, 2),
    ),
    "spectrogram": lambda: of(_spectrogram, r(1, 40)),
    "spectral convolution": lambda: net(SpectralConvolution(), r(1, 3, 11)),
}
