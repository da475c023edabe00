r"""How quickly a signal changes from token to token, and along the graph of attention.

Over positions: the energy of the centred signal at the frequencies of its discrete Fourier
transform, in cycles per token; the highest is ½, and *high* is above half of it. Over a kernel: the
energy in the modes of the Laplacian of its symmetrised graph,

$$
L = \operatorname{diag}(W\mathbf 1) - W, \qquad W = \tfrac12(P+P^\top),
$$

whose constant mode has the value 0 and is removed with the mean. On a directed cycle both agree.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.pde.attention import as_square_kernel
from flowscope.pde.states import as_states, scale_of
from flowscope.simplex.probability import ArrayLike, refuse

__all__ = ["Spectrum", "graph_spectrum", "token_spectrum"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Spectrum:
    """Shares of a signal's energy.

    Attributes
    ----------
    frequencies
        Cycles per token, or the values of the Laplacian; ascending, without the constant.
    shares
        Share of the energy of the centred signal at each; they sum to one.
    high_frequency
        Share above half of the highest frequency, or in the upper half of the modes.
    """

    frequencies: Float[Tensor, "*batch F"]
    shares: Float[Tensor, "*batch F"]
    high_frequency: Float[Tensor, "*batch"]


def token_spectrum(x: Float[Tensor, "*batch N d"] | ArrayLike) -> Spectrum:
    """Spectrum over positions, summed over features.

    Parameters
    ----------
    x
        Signal at tokens that follow one another.

    Raises
    ------
    InvalidInputError
        If there are fewer than three tokens, or all are equal.

    Examples
    --------
    >>> spectrum = token_spectrum([[1.0], [-1.0], [1.0], [-1.0]])
    >>> spectrum.frequencies.tolist(), spectrum.shares.tolist()
    ([0.25, 0.5], [0.0, 1.0])
    """
    signal = _varied(as_states(x, "x"))
    n = signal.shape[-2]
    energy = torch.fft.rfft(signal, dim=-2).abs().square().sum(-1)[..., 1:]
    twice = torch.full_like(energy[..., :1].expand_as(energy), 2.0)
    if n % 2 == 0:
        twice[..., -1] = 1.0  # the highest frequency is its own mirror image
    shares = twice * energy
    shares = shares / shares.sum(-1, keepdim=True)
    frequencies = torch.arange(1, n // 2 + 1).to(shares) / n
    return Spectrum(
        frequencies=frequencies,
        shares=shares,
        high_frequency=(shares * (frequencies > 0.25)).sum(-1),
    )


def graph_spectrum(
    P: Float[Tensor, "*batch N N"] | ArrayLike, x: Float[Tensor, "*batch N d"] | ArrayLike
) -> Spectrum:
    """Spectrum over the modes of an attention kernel, summed over features.

    Parameters
    ----------
    P
        Attention kernels; directions of looks do not count.
    x
        Signal at the tokens.

    Raises
    ------
    InvalidInputError
        If P is not square or no kernel, the signal does not fit, or it is equal at all tokens.

    Examples
    --------
    >>> spectrum = graph_spectrum([[0.0, 1, 0], [0, 0, 1], [1, 0, 0]], [[1.0], [0.0], [-1.0]])
    >>> [round(value, 9) for value in spectrum.frequencies.tolist()]
    [1.5, 1.5]
    """
    kernel = as_square_kernel(P)
    signal = _varied(as_states(x, "x").to(kernel.dtype))
    n = kernel.shape[-1]
    if signal.shape[-2] != n:
        raise InvalidInputError(
            f"the signal must be given at the {n} tokens of the kernel; found {signal.shape[-2]}."
        )
    W = 0.5 * (kernel + kernel.mT)
    L = torch.diag_embed(W.sum(-1)) - W
    # moves the constant mode above all others (the values of L are at most twice a degree)
    away = 4 * W.sum(-1).amax(-1)[..., None, None] / n
    values, modes = torch.linalg.eigh(L + away)
    shares = (modes.mT @ signal).square().sum(-1)[..., :-1]
    shares = shares / shares.sum(-1, keepdim=True)
    return Spectrum(
        frequencies=values[..., :-1],
        shares=shares,
        high_frequency=shares[..., n // 2 :].sum(-1),
    )


def _varied(signal: Float[Tensor, "*batch N d"]) -> Float[Tensor, "*batch N d"]:
    """The signal less its mean over tokens, in units of its size; refuse equal tokens."""
    if signal.shape[-2] < 3:
        raise InvalidInputError(
            f"a spectrum needs at least three tokens; found {signal.shape[-2]}."
        )
    signal = signal * scale_of(signal, (-1, -2))
    centred = signal - signal.mean(-2, keepdim=True)
    size = signal.norm(dim=(-1, -2))
    left = centred.norm(dim=(-1, -2))
    refuse(
        left <= 8 * torch.finfo(signal.dtype).eps * size,
        left,
        "a spectrum needs tokens that differ; all are equal",
        "Leave this layer out.",
    )
    return centred
