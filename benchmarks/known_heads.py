"""Attention heads whose direction is known, as the judges of ``flowscope heads`` read them.

Logits of every head are made directly, read by the probes of the product and judged by its judges:

* ``noise``: independent logits, as sharp as the bundled model (``flat``: nearly uniform; ``sharp``:
  a few keys);
* ``symmetric``: logits of pairs are equal both ways, so that the walk is reversible;
* ``one-way``: logits of pairs are opposite, so that who is looked at does not look back;
  ``one head of 6``: one such head among noise; ``half one-way``: half of the variance;
* ``ring``: every token looks at the next one and the last at the first.

The references are drawn as the product draws them: keys permuted, and noise scaled to the same
effective keys in place of a network with random weights.
"""

from collections.abc import Mapping

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.known_attention import attention_call
from flowscope.instruments.heads.geometry.judge import judge_one_way, judge_sharpness
from flowscope.instruments.heads.geometry.tables import with_ratios
from flowscope.probes import GeometryProbe, MatchedProbe, PermutedProbe
from flowscope.probes.heads.chain_probe import ChainProbe
from flowscope.records import Verdict

__all__ = ["EXPECTED", "HEADS", "head_arrays", "head_table", "head_verdicts"]

PROMPTS, TOKENS, HEAD_COUNT, TWINS = 16, 128, 6, 3
SIZE = 2.0

HEADS = (
    "noise", "flat noise", "sharp noise", "symmetric", "one-way", "half one-way", "one head of 6",
    "ring",
)  # fmt: skip

EXPECTED = {
    ("noise", "M1"): "never holds", ("noise", "M2"): "never holds",
    ("flat noise", "M1"): "uninformative", ("flat noise", "M2"): "uninformative",
    ("sharp noise", "M1"): "never holds", ("sharp noise", "M2"): "never holds",
    ("symmetric", "M1"): "fails", ("symmetric", "M2"): "fails",
    ("one-way", "M1"): "holds", ("one-way", "M2"): "holds",
    ("half one-way", "M2"): "holds",
    ("one head of 6", "M1"): "never holds", ("one head of 6", "M2"): "never holds",
}  # fmt: skip


def _antisymmetric(noise: Tensor) -> Tensor:
    """Logits of pairs that are opposite, with the variance of the noise."""
    upper = noise.triu(1)
    return upper - upper.mT + torch.diag_embed(noise.diagonal(dim1=-2, dim2=-1))


def head_logits(kind: str, generator: torch.Generator, prompts: int = PROMPTS) -> Tensor:
    """Logits of every head, ``[prompts, heads, tokens, tokens]``."""
    noise = torch.randn(prompts, HEAD_COUNT, TOKENS, TOKENS, generator=generator)
    if kind in ("noise", "flat noise", "sharp noise"):
        return {"noise": SIZE, "flat noise": 0.05, "sharp noise": 6.0}[kind] * noise
    if kind == "symmetric":
        upper = noise.triu()
        return SIZE * (upper + upper.triu(1).mT)
    if kind == "one-way":
        return SIZE * _antisymmetric(noise)
    if kind == "half one-way":
        other = torch.randn(noise.shape, generator=generator)
        return SIZE * 0.5**0.5 * (_antisymmetric(noise) + other)
    if kind == "one head of 6":
        noise[:, :1] = _antisymmetric(noise[:, :1])
        return SIZE * noise
    place = torch.arange(TOKENS)
    ring = torch.zeros(TOKENS, TOKENS)
    ring[place, (place + 1) % TOKENS] = 6.0
    return ring + 0.3 * noise


def _read(probe: ChainProbe, logits: Tensor) -> Mapping[str, NDArray[np.float64]]:
    """What a probe says of one layer of heads with these logits."""
    prompts = len(logits)
    keys = torch.eye(TOKENS).expand(prompts, HEAD_COUNT, TOKENS, TOKENS)
    probe.begin(np.arange(prompts), torch.ones(prompts, TOKENS))
    probe.update(attention_call(logits, keys))
    probe.end()
    assert not probe.because, probe.because
    return probe.arrays()


def head_arrays(kind: str, seed: int, *, prompts: int = PROMPTS) -> dict[str, NDArray[np.float64]]:
    """What ``flowscope heads`` stores of such heads."""
    generator = torch.Generator().manual_seed(seed)
    logits = head_logits(kind, generator, prompts)
    own = _read(GeometryProbe(1), logits)
    permuted = _read(PermutedProbe(1, permutations=3), logits)
    keys = dict(enumerate(own["geometry_effective_keys"]))
    twins = [
        _read(MatchedProbe(1, keys=keys, permutation=k), head_logits("noise", generator, prompts))
        for k in range(TWINS)
    ]
    return {
        "model": own["geometry_entropy_production"][:, 0],
        "effective_keys": own["geometry_effective_keys"][:, 0],
        "tokens": own["geometry_tokens"],
        "keys_permuted": np.stack([permuted[f"permuted_{k}"][:, 0] for k in range(3)]),
        "as_sharp": np.stack([twin["matched_production"][:, 0] for twin in twins]),
        "as_sharp_permuted": np.stack([twin["matched_permuted"][:, 0] for twin in twins]),
    }


def head_table(arrays: Mapping[str, NDArray[np.float64]]) -> pd.DataFrame:
    """Log ratios of every head, each by itself and all together."""
    frame = pd.DataFrame({"layer": 1, "head": range(arrays["model"].shape[1])})
    return with_ratios(frame, dict(arrays))


def head_verdicts(kind: str, seed: int) -> list[Verdict]:
    """M1 and M2 on such heads, by the judges of the product."""
    arrays = head_arrays(kind, seed)
    options = {"level": 0.05, "chain": "unmasked", "seed": seed}
    return [
        judge_sharpness(arrays, **options),  # type: ignore[arg-type]
        judge_one_way(arrays, head_table(arrays), **options),  # type: ignore[arg-type]
    ]
