r"""Random changes of attention logits, as large as a given change: the null of every dial.

Logits are defined up to a constant in each row, so a change $\Delta$ is measured without its mean
over the keys that the row sees. The random change is, row by row,

$$
\xi - \bar\xi \;\text{ times }\; \frac{\Vert\Delta - \bar\Delta\Vert_2}{\Vert\xi - \bar\xi\Vert_2},
\qquad \xi_j \sim N(0, 1) .
$$
"""

import zlib

import numpy as np
import torch
from torch import Tensor

from flowscope.tap import Site

__all__ = ["centred", "random_change"]


def centred(x: Tensor, visible: Tensor) -> Tensor:
    """Rows without their mean over the visible keys, zero elsewhere."""
    kept = x.masked_fill(~visible, 0.0)
    mean = kept.sum(-1, keepdim=True) / visible.sum(-1, keepdim=True).clamp_min(1)
    return (kept - mean).masked_fill(~visible, 0.0)


def random_change(
    change: Tensor, visible: Tensor, seed: int, site: Site, heads: tuple[int, ...]
) -> Tensor:
    """A random change with rows of the same norm as those of a centred one.

    Parameters
    ----------
    change, visible
        The change ``[*batch, H, N, N]``, centred, and the pairs that a query sees.
    seed, site, heads
        Decide the directions, with the places of query and key; nothing else does.
    """
    drawn = centred(_directions(seed, site, heads, visible), visible).to(change.dtype)
    own, wanted = (x.square().sum(-1, keepdim=True).sqrt() for x in (drawn, change))
    return drawn * (wanted / own.clamp_min(torch.finfo(drawn.dtype).tiny))


def _directions(seed: int, site: Site, heads: tuple[int, ...], visible: Tensor) -> Tensor:
    r"""Gaussian numbers for each head, query and key that depend on nothing else.

    Tokens are numbered without the padding. Numbers are taken from a stream for each head in the
    order of $\max(i, j)$, so that a longer sequence has those of a shorter one in its corner.
    """
    position = (visible.any(-3).any(-2).cumsum(-1) - 1).clamp_min(0).cpu()
    row, column = position[..., :, None], position[..., None, :]
    last = torch.maximum(row, column)
    order = last**2 + torch.where(row == last, column, last + 1 + row)
    source = (seed, zlib.crc32(site.chain.encode()), site.index, site.call)
    drawn = [
        np.random.default_rng((*source, head)).standard_normal(int(order.max()) + 1, np.float32)
        for head in heads
    ]
    taken = torch.stack([torch.from_numpy(numbers)[order] for numbers in drawn], -3)
    return taken.to(visible.device)
