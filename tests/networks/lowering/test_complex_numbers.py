"""What cannot be told in real numbers is refused with a sentence; angles keep their last digits."""

import numpy as np
import pytest
import torch
from chameleon_core._errors import ConfigError
from chameleon_networks._importers.torch.lowering.complex_numbers import MAX_DFT_LENGTH
from chameleon_networks._importers.torch.lowering.decompositions import decompose
from chameleon_networks._importers.torch.lowering.importer import supported_operators

from .torch_networks import Of


def _decomposed(function, *inputs):
    with torch.no_grad():
        return decompose(torch.export.export(Of(function), inputs), supported_operators())


@pytest.mark.parametrize(
    ("function", "example", "words"),
    [
        (torch.fft.fft, torch.ones(4), "an output of the network is complex"),
        (lambda x: x.real, torch.ones(4, dtype=torch.cfloat), "the input .* is complex"),
        (
            lambda x: torch.fft.fft(x).real,
            torch.ones(MAX_DFT_LENGTH + 1),
            f"a Fourier transform of {MAX_DFT_LENGTH + 1} numbers is too long",
        ),
    ],
)
def test_what_stays_complex_is_refused(function, example, words):
    with pytest.raises(ConfigError, match=words) as caught:
        _decomposed(function, example)
    assert caught.value.hint


def test_the_program_of_the_user_is_left_as_it_is():
    turns = torch.polar(torch.ones(3), torch.arange(3.0))
    program = torch.export.export(
        Of(lambda x: torch.view_as_real(torch.view_as_complex(x) * turns)), (torch.ones(3, 2),)
    )
    before = program.module()(torch.ones(3, 2))
    output = decompose(program, supported_operators()).module()(torch.ones(3, 2))
    assert {constant.dtype for constant in program.constants.values()} == {torch.complex64}
    np.testing.assert_allclose(output.numpy(), before.numpy(), rtol=1e-6)
    np.testing.assert_array_equal(program.module()(torch.ones(3, 2)).numpy(), before.numpy())


def test_a_long_transform_is_as_exact_as_a_short_one():
    signal = torch.randn(MAX_DFT_LENGTH, generator=torch.Generator().manual_seed(0))
    spectrum = _decomposed(lambda x: torch.view_as_real(torch.fft.rfft(x)), signal).module()(signal)
    exact = torch.view_as_real(torch.fft.rfft(signal.double()))
    assert (spectrum.double() - exact).abs().max() <= 1e-5 * exact.abs().max()
    assert spectrum[0, 1] == spectrum[-1, 1] == 0, "both ends of a real signal's spectrum are real"
