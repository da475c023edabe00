"""Train the bundled diffusion transformer and the encoder that reads its samples.

    PYTHONPATH=src python -m studies.image_training.train --data FOLDER --out FOLDER --minutes 7

The data folder holds the four idx files of Fashion-MNIST. An average of the weights (EMA) is what
is evaluated and saved. The out folder is flat: weights in bfloat16 shards,
``encoder.safetensors``, ``grid.png``, ``training.json``; `studies.image_training.card` lays them
out as a pipeline of diffusers.
"""

import argparse
import json
import math
import platform
import time
from pathlib import Path
from typing import Any

import diffusers
import numpy as np
import torch
import torch.nn.functional as F
from diffusers import DiTTransformer2DModel
from PIL import Image
from safetensors.torch import save_file
from studies.image_training.evaluation import accuracy, drawn, frechet, scheduler
from studies.image_training.fashion import CLASSES, Fashion, fashion
from torch import Tensor

from flowscope.nets.encoder import ImageEncoder

__all__ = ["main", "train"]


def fresh_model(options: argparse.Namespace) -> DiTTransformer2DModel:
    """The architecture with gates and output at zero, as diffusion transformers start."""
    torch.manual_seed(options.seed)
    model = DiTTransformer2DModel(
        num_attention_heads=options.width // options.head,
        attention_head_dim=options.head,
        in_channels=1,
        out_channels=1,
        num_layers=options.layers,
        sample_size=28,
        patch_size=options.patch,
        num_embeds_ada_norm=len(CLASSES),
        norm_num_groups=1,
    )
    for block in model.transformer_blocks:
        torch.nn.init.zeros_(block.norm1.linear.weight)
        torch.nn.init.zeros_(block.norm1.linear.bias)
    for layer in (model.proj_out_1, model.proj_out_2):
        torch.nn.init.zeros_(layer.weight)
        torch.nn.init.zeros_(layer.bias)
    return model.eval()  # dropout of labels is ours: the model's own draws anew in each block


def trained_encoder(
    data: Fashion, test: Fashion, options: argparse.Namespace
) -> tuple[ImageEncoder, list[dict[str, float]]]:
    """A classifier of the real images; what it learned of them, epoch by epoch."""
    torch.manual_seed(options.seed)
    device = data.images.device
    encoder = ImageEncoder(channels=1, size=28, classes=len(CLASSES), width=32).to(device)
    steps = math.ceil(len(data.images) / 500) * options.encoder_epochs
    optimiser = torch.optim.AdamW(encoder.parameters(), lr=1e-3, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 4e-3, total_steps=max(steps, 2))
    curve = []
    for epoch in range(options.encoder_epochs):
        encoder.train()
        for rows in torch.randperm(len(data.images), device=device).split(500):
            images = _shifted(data.images[rows])
            loss = F.cross_entropy(encoder(images), data.labels[rows], label_smoothing=0.05)
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            optimiser.step()
            schedule.step()
        found = accuracy(encoder.eval(), test.images, test.labels)
        curve.append({"epoch": epoch + 1, "loss": loss.item(), "test_accuracy": found})
    return encoder, curve


def _shifted(images: Tensor) -> Tensor:
    """The batch moved by up to two pixels."""
    across, down = (int(torch.randint(-2, 3, ())) for _ in range(2))
    return torch.roll(images, (down, across), (2, 3))


def train(
    data: Fashion, encoder: ImageEncoder, options: argparse.Namespace
) -> tuple[DiTTransformer2DModel, dict[str, Any]]:
    """Train until the steps or the minutes are used up; return the averaged weights."""
    device, start = data.images.device, time.perf_counter()
    model, average = fresh_model(options).to(device), fresh_model(options).to(device)
    levels = scheduler().alphas_cumprod.to(device)
    optimiser = torch.optim.AdamW(
        model.parameters(), lr=0.0, weight_decay=0.01, betas=(0.9, 0.99),
        fused=device.type == "cuda",
    )  # fmt: skip
    run = torch.compile(model) if options.compile else model
    draw = torch.Generator(device).manual_seed(options.seed)
    losses, curve, step, watched = [], [], 0, 0.0
    while (share := _share(step, time.perf_counter() - start, options)) < 1:
        rate = options.rate * min(1, (step + 1) / options.warmup) * min(1, (1 - share) / 0.4)
        for group in optimiser.param_groups:
            group["lr"] = rate
        loss = _loss(run, data, levels, draw, options)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        step += 1
        keep = min(options.memory, (1 + step) / (10 + step))
        with torch.no_grad():
            torch._foreach_lerp_(list(average.parameters()), list(model.parameters()), 1 - keep)
        losses.append(loss.detach())
        if share >= watched:
            curve.append(_watched(average, encoder, losses, step, start, options))
            watched += 1 / options.moments
            losses = []
    curve.append(_watched(average, encoder, losses, step, start, options))
    record = {"steps": step, "seconds": time.perf_counter() - start, "curve": curve}
    return average, record


def _share(step: int, elapsed: float, options: argparse.Namespace) -> float:
    return max(step / options.steps, elapsed / (60 * options.minutes))


def _loss(
    model: Any, data: Fashion, levels: Tensor, draw: torch.Generator, options: argparse.Namespace
) -> Tensor:
    """Mean squared error of the predicted noise at random times; labels dropped for guidance."""
    device, size = data.images.device, options.batch
    rows = torch.randint(len(data.images), (size,), device=device, generator=draw)
    clean, labels = data.images[rows], data.labels[rows]
    dropped = torch.rand(size, device=device, generator=draw) < 0.1
    labels = labels.masked_fill(dropped, len(CLASSES))
    times = torch.randint(1000, (size,), device=device, generator=draw)
    noise = torch.randn(clean.shape, device=device, generator=draw)
    level = levels[times][:, None, None, None]
    noisy = level.sqrt() * clean + (1 - level).sqrt() * noise
    with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
        found = model(noisy, timestep=times, class_labels=labels).sample
    return F.mse_loss(found.float(), noise)


def _watched(
    model: DiTTransformer2DModel,
    encoder: ImageEncoder,
    losses: list[Tensor],
    step: int,
    start: float,
    options: argparse.Namespace,
) -> dict[str, float]:
    labels = torch.arange(options.watched, device=model.device) % len(CLASSES)
    images = drawn(model, labels, steps=options.watched_steps, eta=0.0, seed=1)
    row = {
        "step": step,
        "seconds": time.perf_counter() - start,
        "loss": float(torch.stack(losses).mean()) if losses else math.nan,
        "class_accuracy": accuracy(encoder, images, labels),
    }
    print(json.dumps({k: round(v, 4) for k, v in row.items()}), flush=True)
    return row


def evaluated(
    model: DiTTransformer2DModel, encoder: ImageEncoder, train: Fashion, test: Fashion,
    options: argparse.Namespace,
) -> dict[str, Any]:  # fmt: skip
    """Accuracy and Fréchet distance of final samples beside real images and random weights."""
    labels = torch.arange(options.judged, device=model.device) % len(CLASSES)
    half = len(train.images) // 2
    found: dict[str, Any] = {
        "real_test_accuracy": accuracy(encoder, test.images, test.labels),
        "frechet_train_test": frechet(encoder, train.images, test.images),
        "frechet_train_halves": frechet(encoder, train.images[:half], train.images[half:]),
        "samples": options.judged,
    }
    for name, steps, eta in (("ddim_50", 50, 0.0), ("ddim_100", 100, 0.0), ("ddpm_100", 100, 1.0)):
        images = drawn(model, labels, steps=steps, eta=eta, seed=2)
        by_class = {
            title: accuracy(encoder, images[labels == c], labels[labels == c])
            for c, title in enumerate(CLASSES)
        }
        found[name] = {
            "class_accuracy": accuracy(encoder, images, labels),
            "frechet": frechet(encoder, images, test.images),
            "by_class": by_class,
        }
    torch.manual_seed(options.seed + 1)
    noise = drawn(fresh_model(options).to(model.device), labels[:500], steps=50, eta=0.0, seed=2)
    found["random_weights_accuracy"] = accuracy(encoder, noise, labels[:500])
    _grid(images, labels, options.out / "grid.png")
    return found


def _grid(images: Tensor, labels: Tensor, path: Path) -> None:
    """Ten samples of each class, one row a class."""
    rows = []
    for label in range(len(CLASSES)):
        chosen = images[labels == label][:10, 0].clamp(-1, 1).cpu()
        rows.append(torch.cat(list(chosen), 1))
    pixels = ((torch.cat(rows) + 1) * 127.5).round().to(torch.uint8).numpy()
    Image.fromarray(np.repeat(np.repeat(pixels, 2, 0), 2, 1)).save(path, optimize=True)


def main(given: list[str] | None = None) -> None:
    """Train, evaluate the stored (rounded) weights, write."""
    options = _options(given)
    options.out.mkdir(parents=True, exist_ok=True)
    torch.set_float32_matmul_precision("high")
    parts = {}
    for part in ("train", "t10k"):
        found = fashion(options.data, part)
        parts[part] = Fashion(
            images=found.images.to(options.device),
            labels=found.labels.to(options.device),
            sha256=found.sha256,
        )
    encoder, encoder_curve = trained_encoder(parts["train"], parts["t10k"], options)
    encoder = encoder.eval()
    model, record = train(parts["train"], encoder, options)
    model = model.to(torch.bfloat16)  # what is stored is what is evaluated
    model.save_pretrained(options.out, max_shard_size="14MB")
    scheduler().save_pretrained(options.out)
    stored = {k: v.cpu().contiguous() for k, v in encoder.state_dict().items()}
    save_file(stored, options.out / "encoder.safetensors")
    record |= {
        "evaluation": evaluated(model.float(), encoder, parts["train"], parts["t10k"], options),
        "encoder": {"curve": encoder_curve, "parameters": sum(v.numel() for v in stored.values())},
        "parameters": model.num_parameters(),
        "options": {k: v for k, v in vars(options).items() if k not in ("data", "out")},
        "data": {part: {"images": len(x.images), "sha256": x.sha256} for part, x in parts.items()},
        "device": torch.cuda.get_device_name() if options.device == "cuda" else options.device,
        "versions": {"python": platform.python_version(), "torch": torch.__version__,
                     "diffusers": diffusers.__version__, "numpy": np.__version__},
    }  # fmt: skip
    (options.out / "training.json").write_text(json.dumps(record, indent=1) + "\n")
    print(json.dumps({k: v for k, v in record["evaluation"].items() if not isinstance(v, dict)}))
    for name in ("ddim_50", "ddim_100", "ddpm_100"):
        found = record["evaluation"][name]
        print(name, round(found["class_accuracy"], 4), "frechet", round(found["frechet"], 3))


def _options(given: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=True)
    numbers: dict[str, tuple[type, Any]] = {
        "minutes": (float, 7.0), "steps": (int, 30000), "batch": (int, 512), "rate": (float, 1e-3),
        "warmup": (int, 500), "memory": (float, 0.999), "layers": (int, 16), "width": (int, 192),
        "head": (int, 32), "patch": (int, 2), "seed": (int, 0), "encoder_epochs": (int, 25),
        "moments": (int, 12), "watched": (int, 500), "watched_steps": (int, 50),
        "judged": (int, 2000),
    }  # fmt: skip
    for name, (kind, default) in numbers.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=kind, default=default)
    return parser.parse_args(given)


if __name__ == "__main__":
    main()
