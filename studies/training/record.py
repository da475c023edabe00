"""What is written down of a training run: options, sizes, losses beside baselines, versions."""

import argparse
import hashlib
import math
import platform
import shlex
from typing import TYPE_CHECKING, Any

import numpy as np
import tokenizers
import torch
import transformers
from studies.training.depth import depth_figures
from studies.training.evaluation import (
    Loss,
    held_out_losses,
    model_scores,
    total,
    unigram_scores,
)
from transformers import LlamaForCausalLM

if TYPE_CHECKING:
    from studies.training.schedule import Schedule
    from studies.training.train import Run

__all__ = ["training_record"]


def training_record(run: "Run", schedule: "Schedule", seconds: float) -> dict[str, Any]:
    """The record of a run whose model has been saved; losses are those of the saved weights."""
    options, data = run.options, run.data
    shipped = LlamaForCausalLM.from_pretrained(options.out, dtype=torch.float32)
    shipped = shipped.to(run.device).eval()
    scores = {
        "model": model_scores(shipped, autocast=False),
        "unigram": unigram_scores(list(data.rows.values()), data.corpus["pieces"]),
        "random_weights": model_scores(run.random, autocast=False),
    }
    losses = {name: held_out_losses(s, data.held_out) for name, s in scores.items()}
    steps = int(run.history[-1]["step"])
    tokens = steps * options.batch * options.context
    return {
        "command": _command(options),
        "options": {k: v for k, v in vars(options).items() if k not in ("data", "out", "given")},
        "parameters": shipped.num_parameters(),
        "sha256": hashlib.sha256((options.out / "model.safetensors").read_bytes()).hexdigest(),
        "bytes": (options.out / "model.safetensors").stat().st_size,
        "steps": steps,
        "decay_since": schedule.falling_since,
        "tokens_seen": tokens,
        "epochs": tokens / sum(len(row) for row in data.rows.values()),
        "seconds": seconds,
        "compiled": run.compiled,
        "device": _device(run.device),
        "best": run.best,
        "heldout": _perplexities(losses, data.corpus["sources"]),
        "depth": {"trained": depth_figures(shipped, run.watched),
                  "random_weights": depth_figures(run.random, run.watched)},
        "history": run.history,
        "corpus": data.corpus,
        "versions": _versions(),
    }  # fmt: skip


def _perplexities(
    losses: dict[str, dict[str, Loss]], sources: dict[str, Any]
) -> dict[str, dict[str, Any]]:
    sizes = {name: source["heldout"]["bytes"] for name, source in sources.items()}
    table = {}
    for name in (*sizes, "all"):
        size = sum(sizes.values()) if name == "all" else sizes[name]
        found = {kind: total(x) if name == "all" else x[name] for kind, x in losses.items()}
        table[name] = {"tokens": next(iter(found.values())).tokens, "bytes": size} | {
            kind: {"per_token": math.exp(loss.mean), "per_byte": math.exp(loss.nats / size)}
            for kind, loss in found.items()
        }
    return table


def _command(options: argparse.Namespace) -> str:
    """The command with the two folders by their role: where they lay does not matter."""
    roles = {str(options.data): "CORPUS", str(options.out): "MODEL"}
    given = [roles.get(argument, argument) for argument in options.given]
    return shlex.join(["python", "-m", "studies.training.train", *given])


def _device(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else str(device)


def _versions() -> dict[str, str]:
    modules = {"torch": torch, "transformers": transformers, "tokenizers": tokenizers, "numpy": np}
    return {"python": platform.python_version()} | {k: m.__version__ for k, m in modules.items()}
