"""Pairs of models whose right answer to L4 is known.

Question: does L4 hold where consensus is better by construction, and nowhere else?

* ``same``: a model with itself. Uninformative: there is nothing to agree on.
* ``noise``: the model with a network of random weights. Never holds.
* ``perturbed``: two copies with independent noise on all weights. No answer is known.
* ``planted``: two copies that compute the same, their hidden units in different orders (so that the
  mean of the weights computes nothing), each with noise of its own on the embeddings. Drawing the
  states together after the first blocks halves the variance of that noise before it is processed;
  a mean of outputs comes too late. Holds.

Run: ``python -m benchmarks.consensus_panel [--only SUBJECT]``; writes
``benchmarks/results/consensus_panel.json``, subject by subject.
"""

import argparse
import copy
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmarks.machine import described
from flowscope.instruments.latent.stable_alignment.comparison.judge import judge_losses
from flowscope.instruments.latent.stable_alignment.comparison.scoring import scored
from flowscope.instruments.latent.stable_alignment.comparison.ways import blocks_of
from flowscope.instruments.latent.stable_alignment.names import (
    AVERAGE,
    LAYER_SETS,
    LOGITS,
    PROBABILITIES,
)
from flowscope.levers import consensus
from flowscope.models.loading import load
from flowscope.models.prompts import packaged_texts, prompts_of
from flowscope.models.twin import fresh_twin
from flowscope.nets import bundled_path

RESULT = Path(__file__).parent / "results" / "consensus_panel.json"
TEXTS, TOKENS = 48, 32
NOISE = 1.0
"""Noise on the embeddings of the planted pair, in units of their standard deviation."""


@torch.no_grad()
def shaken(model: nn.Module, size: float, seed: int, *, embeddings: bool = False) -> Any:
    """A copy with noise on all weights, or on the embeddings alone, the head left as it was."""
    draw, twin = torch.Generator().manual_seed(seed), copy.deepcopy(model)
    if embeddings:
        twin.lm_head.weight = nn.Parameter(twin.lm_head.weight.clone())
        weights = [twin.model.embed_tokens.weight]
    else:
        weights = list(twin.parameters())
    for weight in weights:
        weight += size * weight.std() * torch.randn(weight.shape, generator=draw)
    return twin


@torch.no_grad()
def reordered(model: Any, seed: int) -> Any:
    """The same function with the hidden units of every feed-forward part in another order."""
    draw = torch.Generator().manual_seed(seed)
    for block in model.model.layers:
        mlp = block.mlp
        order = torch.randperm(mlp.gate_proj.weight.shape[0], generator=draw)
        mlp.gate_proj.weight.copy_(mlp.gate_proj.weight[order])
        mlp.up_proj.weight.copy_(mlp.up_proj.weight[order])
        mlp.down_proj.weight.copy_(mlp.down_proj.weight[:, order])
    return model


SUBJECTS: dict[str, tuple[str, Callable[[Any], list[Any]]]] = {
    "same": ("uninformative", lambda m: [m, copy.deepcopy(m)]),
    "noise": ("never holds", lambda m: [m, fresh_twin(m, 0)]),
    "perturbed": ("–", lambda m: [shaken(m, 0.1, k) for k in (1, 2)]),
    "planted": (
        "holds",
        lambda m: [
            shaken(m, NOISE, 1, embeddings=True),
            reordered(shaken(m, NOISE, 2, embeddings=True), 3),
        ],
    ),
}


@torch.no_grad()
def averaged(pair: list[Any]) -> Any:
    """The mean of the weights."""
    mean = copy.deepcopy(pair[0])
    for name, weight in mean.named_parameters():
        weight.copy_((weight + pair[1].get_parameter(name)) / 2)
    return mean


def judged(name: str) -> dict[str, Any]:
    """Verdict on one subject, and the losses behind it."""
    loaded = load(bundled_path(), dtype=torch.float32)
    right, make = SUBJECTS[name]
    pair = [model.eval() for model in make(loaded.model.eval())]
    prompts = prompts_of(loaded, packaged_texts(), count=TEXTS, length=TOKENS)
    score = partial(scored, loaded, prompts, 12)
    apart = score(lambda inputs: [model(**inputs) for model in pair])
    average = averaged(pair)
    mean = score(lambda inputs: [average(**inputs)])
    tokens = apart["tokens"]
    plain = {
        LOGITS: apart["logits"] / tokens, PROBABILITIES: apart["mixed"] / tokens,
        AVERAGE: mean["losses"][0] / tokens,
    }  # fmt: skip
    agreed = {}
    for layers in LAYER_SETS:
        blocks = blocks_of(layers, len(loaded.model.model.layers))
        with consensus(pair, blocks) as both:
            arrays = score(lambda inputs, both=both: both(**inputs))
        agreed[layers, 1.0] = arrays["losses"].mean(0) / tokens
    divergence = float(apart["divergence"].sum() / tokens.sum())
    verdict = judge_losses({"general": (plain, agreed)}, divergence=divergence, seed=0)
    return {
        "right": right, "outcome": verdict.outcome, "effect": float(verdict.effect),
        "because": verdict.because, "divergence": divergence,
        "losses": {
            "members": [float(row.sum() / tokens.sum()) for row in apart["losses"]],
            **{way: float(values.mean()) for way, values in plain.items()},
            **{f"consensus, {way}": float(values.mean()) for (way, _), values in agreed.items()},
        },
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=sorted(SUBJECTS))
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = json.loads(options.out.read_text())["subjects"] if options.out.exists() else {}
    for name in [options.only] if options.only else SUBJECTS:
        found[name] = judged(name)
        print(name, found[name]["outcome"], found[name]["because"])
        document = {"machine": described(), "texts": TEXTS, "tokens": TOKENS, "subjects": found}
        options.out.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
