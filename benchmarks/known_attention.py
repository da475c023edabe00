"""Attention of one layer whose contraction is known, as the curvature probe reads it.

Points lie in the plane, and the rows of attention are made from them or in spite of them:

* ``gathered``: every row attends to other keys, all of them near one place (contraction);
* ``local``: every row attends to the keys near its own point;
* ``opposite``: each row attends to one side of the cloud (the contrary of contraction);
* ``permuted``: as focused as local attention, on keys that have no place;
* ``noise``: random logits;
* ``uniform``: every key alike, so that all rows are the same.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from flowscope.evidence import resampled_counts
from flowscope.instruments.audit.contraction.judge import judge_contraction
from flowscope.instruments.audit.contraction.tables import curvature_table, prompt_arrays
from flowscope.probes import Arrays, CurvatureProbe
from flowscope.records import Unavailable, Verdict
from flowscope.tap import AttentionCall, Site

__all__ = ["ATTENTION", "attention_arrays", "attention_call", "contraction_verdict"]

ATTENTION = ("gathered", "local", "opposite", "permuted", "noise", "uniform")
TOKENS = 16


def attention_call(q: Tensor, k: Tensor, *, index: int = 0) -> AttentionCall:
    """Attention with these queries and keys, ``[prompts, heads, tokens, width]``, as one call."""
    site = Site(chain="c", index=index, path="c.0.attn", call=0, stream="x")
    return AttentionCall(
        site=site, q=q, k=k, v=k, mask=None, causal=False, scale=1.0, softcap=None, groups=1,
        dropout=0.0, cross=False, forward=0, _kernel=lambda: k,
    )  # fmt: skip


def attention_logits(
    kind: str, points: NDArray[np.float64], rng: np.random.Generator
) -> NDArray[np.float64]:
    """Logits of one head, ``[prompts, tokens, tokens]``."""
    noise = rng.standard_normal((len(points), TOKENS, TOKENS))
    apart = ((points[:, :, None] - points[:, None]) ** 2).sum(-1)
    if kind == "gathered":
        return np.asarray(2 * noise - 2 * (points**2).sum(-1)[:, None])
    if kind == "opposite":
        side = rng.standard_normal((len(points), TOKENS, 1))
        return np.asarray(noise + 1.5 * side * points[:, None, :, 0])
    if kind == "permuted":
        return -np.stack([row[:, rng.permutation(TOKENS)] for row in apart])
    return {"local": -apart, "uniform": np.zeros_like(noise), "noise": 2 * noise}[kind]


def attention_arrays(
    kind: str, seed: int, *, prompts: int = 12, heads: int = 2, pairs: int = 4
) -> Arrays:
    """What the probe reads of one layer of such heads."""
    rng = np.random.default_rng(seed)
    points = rng.standard_normal((prompts, TOKENS, 2))
    queries = np.stack([attention_logits(kind, points, rng) for _ in range(heads)], 1)
    keys = torch.eye(TOKENS).expand(prompts, heads, TOKENS, TOKENS)
    probe = CurvatureProbe(1, pairs=pairs)
    probe.begin(np.arange(prompts), torch.ones(prompts, TOKENS))
    probe.update(attention_call(torch.tensor(queries).float(), keys), torch.tensor(points))
    probe.end()
    assert probe.because == ""
    return probe.arrays()


def contraction_verdict(arrays: Arrays, *, prompts: int = 12) -> Verdict:
    """P3 on these arrays, by the judge of the audit."""
    counts = resampled_counts(prompts, resamples=200, seed=0)
    table = curvature_table(arrays, Unavailable("no twin"), counts)
    means = prompt_arrays(arrays, prompts)
    return judge_contraction(means["kappa"], means["keys_permuted"], table, resamples=200)
