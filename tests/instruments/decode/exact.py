"""Denoisers whose joint law is known, as functions of ids; tokens 0 … V − 1, the mask is V."""

import itertools

import numpy as np
import torch

from flowscope.models.infilling.loading import infiller
from flowscope.models.infilling.templates import Template

__all__ = [
    "blank_templates",
    "by_enumeration",
    "chain",
    "independent",
    "infiller_of",
    "noise",
    "parity",
    "prompts_of",
    "two_kinds",
]

_NEVER = -1e30


def infiller_of(law, outcomes):
    """Infiller of a function that returns logits of ``outcomes`` tokens; the mask is the next."""

    def naming(ids, present):
        logits = torch.as_tensor(law(ids), dtype=torch.float64)
        never = torch.full((*logits.shape[:-1], 1), _NEVER, dtype=torch.float64)
        return torch.cat([logits, never], -1)

    return infiller(naming, mask=outcomes, outcomes=outcomes + 1)


def blank_templates(count, length, mask):
    """Prompts of masks alone."""
    whole = np.ones(length, bool)
    return [Template(ids=np.full(length, mask), blank=whole) for _ in range(count)]


def independent(p):
    """Bits that are 1 with probability p, whatever else is known."""
    logits = torch.log(torch.tensor([1 - p, p], dtype=torch.float64))
    return infiller_of(lambda ids: logits.expand(*ids.shape, 2), 2)


def parity():
    """Uniform bits of even sum: a bit is free until all others are known."""

    def law(ids):
        known = ids < 2
        ones = ((ids == 1) & known).sum(1, keepdim=True) % 2
        others_known = (~known).sum(1, keepdim=True) == 1
        odd = (ones == 1).expand(*ids.shape)
        last = torch.where(odd[..., None], torch.tensor([_NEVER, 0.0]), torch.tensor([0.0, _NEVER]))
        free = torch.zeros(*ids.shape, 2)
        return torch.where((others_known & ~known)[..., None], last, free)

    return infiller_of(law, 2)


def chain(start, step):
    """Markov chain; laws of the hidden sites by forward and backward messages."""
    outcomes = len(start)

    def law(ids):
        rows = []
        for row in ids.tolist():
            seen = [np.ones(outcomes) if t == outcomes else np.eye(outcomes)[t] for t in row]
            ahead, back = [start], [np.ones(outcomes)]
            for evidence in seen[:-1]:
                ahead.append((ahead[-1] * evidence) @ step)
            for evidence in seen[:0:-1]:
                back.append(step @ (back[-1] * evidence))
            beliefs = [a * b for a, b in zip(ahead, back[::-1], strict=True)]
            rows.append([np.log(b / b.sum()) for b in beliefs])
        return np.array(rows)

    return infiller_of(law, outcomes)


def by_enumeration(joint):
    """Conditionals of a joint law given as an array ``[V] * n``, by summing over all sequences."""
    outcomes, length = joint.shape[0], joint.ndim
    words = np.array(list(itertools.product(range(outcomes), repeat=length)))
    mass = joint.reshape(-1)

    def law(ids):
        rows = []
        for row in ids.numpy():
            fits = ((words == row) | (row == outcomes)).all(1)
            weight = mass * fits
            counts = [np.bincount(words[:, k], weight, outcomes) for k in range(length)]
            with np.errstate(divide="ignore"):
                rows.append([np.maximum(np.log(c / c.sum()), _NEVER) for c in counts])
        return np.array(rows)

    return infiller_of(law, outcomes)


PAYLOAD, BLANKS = 12, 6


def two_kinds():
    """Bits that follow from the prompt (kind 0), or each from the bit before it (kind 1).

    A sequence is kind, payload, blanks. A bit whose cause is hidden is read as 0, hardly surer than
    a coin.
    """

    def law(ids):
        kind, payload, answer = ids[:, :1], ids[:, 1 : 1 + PAYLOAD], ids[:, 1 + PAYLOAD :]
        causes = payload[:, :BLANKS]
        earlier = torch.cat([payload[:, -1:], answer[:, :-1]], 1)
        bits = torch.where(kind == 0, causes, causes ^ (earlier & 1))
        sure = (kind == 0) | (earlier < 2)
        logits = torch.zeros(*ids.shape, 2)
        lean = torch.where(sure, torch.where(bits == 1, 9.0, -9.0), torch.tensor(-0.2))
        logits[:, 1 + PAYLOAD :, 1] = lean
        return logits

    return infiller_of(law, 2)


def noise():
    """Sharp laws that change with every token: nothing can be filled early."""

    def law(ids):
        rows = []
        for row in ids.tolist():
            rng = np.random.default_rng(row)
            rows.append(9 * rng.standard_normal((len(row), 2)))
        return np.array(rows)

    return infiller_of(law, 2)


def prompts_of(count, seed, kinds=(0, 1), mask=2):
    """Different prompts of the kinds, with six blanks each."""
    rng = np.random.default_rng(seed)
    payloads = rng.permutation(2**PAYLOAD)[:count]
    ids = np.full((count, 1 + PAYLOAD + BLANKS), mask)
    ids[:, 0] = rng.choice(kinds, count)
    ids[:, 1 : 1 + PAYLOAD] = payloads[:, None] >> np.arange(PAYLOAD) & 1
    blank = np.arange(ids.shape[1]) > PAYLOAD
    return [Template(ids=row, blank=blank) for row in ids]
