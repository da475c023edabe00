r"""Resamples of independent units, as how often each is drawn.

.. math:: w \sim \mathrm{Multinomial}(n;\, 1/n, \dots, 1/n), \qquad
          \bar x^\star = \frac1n \sum_i w_i x_i
"""

import torch
from jaxtyping import Float64
from torch import Tensor

__all__ = ["resample_weights", "resampled_means"]

_DRAWN = 2**22  # units drawn at once


def resample_weights(
    draws: int, units: int, generator: torch.Generator
) -> Float64[Tensor, "draws units"]:
    """How often each unit is in each resample, on the device of the generator.

    Examples
    --------
    >>> resample_weights(3, 5, torch.Generator().manual_seed(0)).sum(1).tolist()
    [5.0, 5.0, 5.0]
    """
    device = generator.device
    taken = torch.randint(0, units, (draws, units), generator=generator, device=device)
    counts = torch.zeros(draws, units, dtype=torch.float64, device=device)
    return counts.scatter_add_(1, taken, counts.new_ones(()).expand_as(counts))


def resampled_means(
    rows: Float64[Tensor, "n k"], draws: int, generator: torch.Generator
) -> Float64[Tensor, "draws k"]:
    """Means of resampled rows, a few million drawn units at a time.

    Examples
    --------
    >>> rows = torch.tensor([[1.0, 2.0], [1.0, 2.0]]).double()
    >>> resampled_means(rows, 2, torch.Generator().manual_seed(0)).tolist()
    [[1.0, 2.0], [1.0, 2.0]]
    """
    n, parts = len(rows), []
    panel = max(1, _DRAWN // n)
    for start in range(0, draws, panel):
        weights = resample_weights(min(panel, draws - start), n, generator)
        parts.append(weights.to(rows.device) @ rows / n)
    return torch.cat(parts)
