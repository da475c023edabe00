"""How good samples are: read as the class that was asked, and near the real images in features."""

from typing import Any

import torch
from diffusers import DDIMScheduler
from torch import Tensor, nn

from flowscope.nets.encoder import ImageEncoder

__all__ = ["accuracy", "drawn", "frechet", "scheduler"]


def scheduler() -> DDIMScheduler:
    """The schedule of the model: VP, linear, 1,000 times, it predicts the noise."""
    return DDIMScheduler(
        num_train_timesteps=1000,
        beta_schedule="linear",
        beta_start=1e-4,
        beta_end=0.02,
        prediction_type="epsilon",
        clip_sample=False,  # a clipped sampler is not the flow of the score
        set_alpha_to_one=True,
        timestep_spacing="leading",
        steps_offset=0,
    )


@torch.no_grad()
def drawn(model: nn.Module, labels: Tensor, *, steps: int, eta: float, seed: int) -> Tensor:
    """Samples of these labels."""
    clock, device = scheduler(), labels.device
    clock.set_timesteps(steps)
    generator = torch.Generator(device).manual_seed(seed)
    x = torch.randn(len(labels), 1, 28, 28, generator=generator, device=device)
    options: dict[str, Any] = {"eta": eta, "generator": generator}
    for t in clock.timesteps:
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            noise = model(x, timestep=t.to(device).expand(len(x)), class_labels=labels).sample
        x = clock.step(noise.float(), t, x, **options).prev_sample
    return x


@torch.no_grad()
def accuracy(encoder: ImageEncoder, images: Tensor, labels: Tensor) -> float:
    """Share of images that the encoder reads as their label."""
    read = torch.cat([encoder(part).argmax(1) for part in images.split(2000)])
    return float((read == labels).double().mean())


@torch.no_grad()
def frechet(encoder: ImageEncoder, first: Tensor, second: Tensor) -> float:
    """Fréchet distance of two sets of images as Gaussians of their features."""
    moments = []
    for images in (first, second):
        features = torch.cat([encoder.features(part) for part in images.split(2000)]).double()
        moments.append((features.mean(0), features.T.cov()))
    (a, A), (b, B) = moments
    values, vectors = torch.linalg.eigh(A)
    root = (vectors * values.clamp_min(0).sqrt()) @ vectors.T
    crossed = torch.linalg.eigvalsh(root @ B @ root).clamp_min(0).sqrt().sum()
    return float(((a - b) ** 2).sum() + A.trace() + B.trace() - 2 * crossed)
