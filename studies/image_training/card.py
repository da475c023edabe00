"""Lay a training folder out as a pipeline folder of diffusers, with its model card.

python -m studies.image_training.card TRAINED FOLDER
"""

# ruff: noqa: E501 (lines of the card are lines of text)

import argparse
import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
from studies.image_training.fashion import CLASSES

__all__ = ["card", "laid_out"]

_SHARDS = "diffusion_pytorch_model*"


def laid_out(trained: Path, folder: Path) -> None:
    """Copy what was trained into ``transformer``, ``scheduler`` and ``encoder``; write the card."""
    for part in ("transformer", "scheduler", "encoder"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    for file in trained.glob(_SHARDS):
        shutil.copyfile(file, folder / "transformer" / file.name)
    shutil.copyfile(trained / "config.json", folder / "transformer" / "config.json")
    shutil.copyfile(
        trained / "scheduler_config.json", folder / "scheduler" / "scheduler_config.json"
    )
    shutil.copyfile(trained / "encoder.safetensors", folder / "encoder" / "model.safetensors")
    shutil.copyfile(trained / "grid.png", folder / "grid.png")
    record = json.loads((trained / "training.json").read_text(encoding="utf-8"))
    weights = sorted(folder.glob("*/*.safetensors"))
    record["weights"] = {str(f.relative_to(folder)): _hash(f) for f in weights}
    record["bytes"] = sum(file.stat().st_size for file in weights)
    sizes = {"channels": 1, "size": 28, "classes": len(CLASSES), "width": 32}
    encoder = sizes | {"sha256": record["weights"]["encoder/model.safetensors"]}
    _write(folder / "encoder" / "config.json", encoder)
    _write(folder / "model_index.json", _index(record))
    _write(folder / "training.json", record)
    _curve(record["curve"], folder / "training_curve.png")
    (folder / "README.md").write_text(card(record), encoding="utf-8")


def _hash(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _write(file: Path, content: dict[str, Any]) -> None:
    file.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def _index(record: dict[str, Any]) -> dict[str, Any]:
    return {
        "_class_name": "DiTPipeline",
        "_diffusers_version": record["versions"]["diffusers"],
        "id2label": {str(i): name for i, name in enumerate(CLASSES)},
        "scheduler": ["diffusers", "DDIMScheduler"],
        "transformer": ["diffusers", "DiTTransformer2DModel"],
    }


def _curve(curve: list[dict[str, float]], path: Path) -> None:
    figure, (loss, read) = plt.subplots(1, 2, figsize=(8, 3), layout="constrained")
    steps = [row["step"] for row in curve]
    loss.plot(steps, [row["loss"] for row in curve], "o-", ms=3, color="#1f4e79")
    loss.set(xlabel="step", ylabel="squared error of the noise", yscale="log")
    read.plot(steps, [row["class_accuracy"] for row in curve], "o-", ms=3, color="#1f4e79")
    read.set(xlabel="step", ylabel="samples read as their class", ylim=(0, 1))
    for axis in (loss, read):
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def card(record: dict[str, Any]) -> str:
    """The card as Markdown; every number in it comes from the record."""
    options, judged = record["options"], record["evaluation"]
    samplers = {"ddim_50": "DDIM, 50 steps", "ddim_100": "DDIM, 100 steps",
                "ddpm_100": "DDPM (η = 1), 100 steps"}  # fmt: skip
    rows = [
        f"| {title} | {judged[name]['class_accuracy']:.1%} | {judged[name]['frechet']:.3f} |"
        for name, title in samplers.items()
    ]
    files = [f"| `{name}` | `{digest}` |" for name, digest in record["weights"].items()]
    classes = [f"| {name} | {judged['ddpm_100']['by_class'][name]:.0%} |" for name in CLASSES]
    data = record["data"]
    return f"""# The bundled diffusion transformer

A small real diffusion transformer to try flowscope on without a download: a plain
`DiTTransformer2DModel` of diffusers with {record["parameters"]:,} parameters, class-conditional, in
pixel space, stored in bfloat16. Beside it a convolutional encoder of
{record["encoder"]["parameters"]:,} numbers that reads images of this kind.

![ten samples of each class](grid.png)

| | |
|---|---|
| blocks | {options["layers"]} |
| width, heads | {options["width"]}, {options["width"] // options["head"]} |
| image, patch | 1 × 28 × 28 in [−1, 1], {options["patch"]} × {options["patch"]}: {(28 // options["patch"]) ** 2} tokens |
| classes | {len(CLASSES)}, and label {len(CLASSES)} for no class (guidance) |
| schedule | variance preserving, linear β from 1e-4 to .02, 1,000 times; predicts the noise |

## Data

Fashion-MNIST (Zalando, MIT licence; Debian package `dataset-fashion-mnist`):
{data["train"]["images"]:,} training images, {data["t10k"]["images"]:,} test images that neither network saw.

## Training

{record["steps"]:,} steps of {options["batch"]} images in {record["seconds"]:.0f} s on {record["device"]}. AdamW,
rate {options["rate"]}, warm-up and linear decay, labels dropped with probability .1; the average of
the weights is what is stored. The encoder learned the ten classes from the same training images
({options["encoder_epochs"]} epochs); test accuracy {judged["real_test_accuracy"]:.1%}.

    python -m studies.image_training.train --data FASHION --out TRAINED --minutes {options["minutes"]:g}
    python -m studies.image_training.card TRAINED FOLDER

![loss and class accuracy while it learns](training_curve.png)

## Quality of the stored weights

{judged["samples"]:,} samples a row, no guidance. *Read as asked*: share that the encoder reads as the class
that was asked for (real test images: {judged["real_test_accuracy"]:.1%}, random weights
{judged["random_weights_accuracy"]:.0%}). *Fréchet*: distance of features to the test images (training
images to test images: {judged["frechet_train_test"]:.3f}); it is measured in this encoder and is not
comparable with distances in others.

| sampler | read as asked | Fréchet |
|---|---|---|
{chr(10).join(rows)}

| class (DDPM) | read as asked |
|---|---|
{chr(10).join(classes)}

## Files

| file | sha256 |
|---|---|
{chr(10).join(files)}
"""


def main() -> None:
    """Lay out a folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trained", type=Path)
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    laid_out(options.trained, options.folder)


if __name__ == "__main__":
    main()
