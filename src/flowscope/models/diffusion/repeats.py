"""Whether a denoiser gives the same answer twice."""

import torch
from torch import Tensor

from flowscope.models.diffusion.denoiser import Denoiser
from flowscope.models.reading.repeats import refuse_noise

__all__ = ["refuse_noisy_denoiser"]


def refuse_noisy_denoiser(denoiser: Denoiser) -> str:
    """Refuse a denoiser that answers differently twice; a sentence where rounding differs.

    Raises
    ------
    UnsupportedModelError
        Two predictions for one noisy image differ by more than rounding.
    """
    return refuse_noise(denoiser.loaded.model, lambda: _answer(denoiser))


def _answer(denoiser: Denoiser) -> Tensor:
    """The prediction for one fixed noise at an early time."""
    x = torch.randn(1, *denoiser.shape, generator=torch.Generator().manual_seed(0))
    device = denoiser.device
    labels = torch.zeros(1, dtype=torch.long, device=device) if denoiser.classes else None
    return denoiser.noise(x.to(device), 1, labels)
