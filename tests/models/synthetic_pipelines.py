"""Small random-weight diffusion pipelines in folders, and the exact denoiser of a Gaussian."""

import json
from types import SimpleNamespace

import torch
from diffusers import (
    AutoencoderKL,
    DDIMScheduler,
    DDPMScheduler,
    DiTTransformer2DModel,
    UNet2DModel,
)
from torch import nn

from flowscope.models.diffusion.denoiser import Denoiser
from flowscope.models.loading import load
from flowscope.records import Unavailable

SIDE, CLASSES = 8, 3


def shaken(model, size=0.08):
    """Every parameter generic: zero gates would leave blocks dead."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(size * torch.randn(parameter.shape, generator=generator))
    return model.eval()


def dit(channels=1, out=None, layers=2, **more):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = DiTTransformer2DModel(
            num_attention_heads=2, attention_head_dim=16, in_channels=channels,
            out_channels=out or channels, num_layers=layers, sample_size=SIDE, patch_size=2,
            num_embeds_ada_norm=CLASSES, **more,
        )  # fmt: skip
    return shaken(model)


def unet(**more):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = UNet2DModel(
            sample_size=SIDE, in_channels=1, out_channels=1, block_out_channels=(8, 8),
            layers_per_block=1, norm_num_groups=4, attention_head_dim=4,
            down_block_types=("DownBlock2D", "AttnDownBlock2D"),
            up_block_types=("AttnUpBlock2D", "UpBlock2D"), **more,
        )  # fmt: skip
    return shaken(model, 0.02)


def vae(channels=4):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = AutoencoderKL(
            in_channels=3, out_channels=3, latent_channels=channels, block_out_channels=(8, 8),
            down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2,
            norm_num_groups=4, sample_size=2 * SIDE, scaling_factor=0.5,
        )  # fmt: skip
    return shaken(model, 0.02)


def saved(folder, *, model, scheduler=None, decoder=None, names=None, **index):
    """A pipeline folder as diffusers writes it."""
    part = "unet" if isinstance(model, UNet2DModel) else "transformer"
    parts = {part: ["diffusers", type(model).__name__]}
    model.save_pretrained(folder / part)
    if scheduler is not None:
        scheduler.save_pretrained(folder / "scheduler")
        parts["scheduler"] = ["diffusers", type(scheduler).__name__]
    if decoder is not None:
        decoder.save_pretrained(folder / "vae")
        parts["vae"] = ["diffusers", type(decoder).__name__]
    if names is not None:
        parts["id2label"] = {str(i): name for i, name in enumerate(names)}
    told = {"_class_name": "DiTPipeline", **parts, **index}
    (folder / "model_index.json").write_text(json.dumps(told))
    return folder


def pixel_folder(folder, *, model=None, scheduler=None, **index):
    """A pixel-space pipeline, a DiT of three classes unless another model is given."""
    return saved(
        folder, model=dit() if model is None else model,
        scheduler=DDPMScheduler() if scheduler is None else scheduler, **index,
    )  # fmt: skip


class Gaussian(nn.Module):
    r"""The exact prediction for data $N(0, s^2)$: $\varepsilon(x) = \sqrt{1-\bar\alpha}\,x/v_t$.

    $v_t = \bar\alpha s^2 + 1-\bar\alpha$; as $v$-prediction $\sqrt{\bar\alpha(1-\bar\alpha)}
    (1 - s^2)\,x/v_t$ and as sample $\sqrt{\bar\alpha}s^2x/v_t$.
    """

    def __init__(self, spread, kind="epsilon"):
        super().__init__()
        self.spread, self.kind, self.passes = spread, kind, 0
        self.weight = nn.Parameter(torch.zeros(1))
        self.register_buffer("levels", DDIMScheduler().alphas_cumprod)
        self.config = SimpleNamespace(sample_size=4, in_channels=1, out_channels=1)

    def forward(self, x, timestep):
        self.passes += 1
        level = self.levels[timestep][:, None, None, None]
        total = level * self.spread**2 + 1 - level
        factor = {
            "epsilon": (1 - level).sqrt(),
            "v_prediction": (level * (1 - level)).sqrt() * (1 - self.spread**2),
            "sample": level.sqrt() * self.spread**2,
        }[self.kind]
        return SimpleNamespace(sample=factor * x / total)


def gaussian_denoiser(spread, kind="epsilon", **schedule):
    config = {**DDIMScheduler(prediction_type=kind, clip_sample=False, **schedule).config}
    return Denoiser(
        loaded=load(Gaussian(spread, kind)), schedule=config, decoder=Unavailable("pixels"),
        classes=(), shape=(1, 4, 4), learned_variance=False,
    )  # fmt: skip


def pooled(images):
    """An encoder: means over quarters of the image."""
    return torch.nn.functional.adaptive_avg_pool2d(images, 2).flatten(1) + 0.1
