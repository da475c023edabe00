r"""The output path as a descent: which layers satisfy an evolution variational inequality.

A proximal step of size $\eta$ for a (geodesically convex) energy $F$ obeys, for every target
$\sigma$, the two inequalities

$$
W_2^2(p^{\ell-1}, p^\ell) \le 2\eta\,(F(p^{\ell-1}) - F(p^\ell)), \qquad
W_2^2(p^\ell, \sigma) - W_2^2(p^{\ell-1}, \sigma) \le 2\eta\,(F(\sigma) - F(p^\ell)).
$$

Here $\sigma = p^L$ is the model's own output and $F = \mathrm{KL}(\cdot\Vert p^L)$, so that
$F(\sigma) = 0$. 000 (eq 22) writes the second with a free step size *and* a free drift term on the
right: it cannot fail. Both unknowns go by asking whether *any* step size satisfies both. There is
one exactly when $F$ fell and the *slack*

$$
s_\ell = \frac{W_2^2(p^{\ell-1}, p^L) - W_2^2(p^\ell, p^L)
         - W_2^2(p^{\ell-1}, p^\ell)\, F(p^\ell) / (F(p^{\ell-1}) - F(p^\ell))}
        {W_2^2(p^{\ell-1}, p^L)}
$$

is not negative; it has no unit. Into the last layer it is 1 by construction.

It is a surrogate, not a test of the theory: on a finite set of outcomes $F$ is not convex along
$W_2$ geodesics (they leave the set), so even an exact sequence of proximal steps may violate it. On
two outcomes, for a path that moves straight to its target, it holds exactly when the divergence at
least halves. Read it beside its references.

The ground metric is the distance between the rows of the output matrix, on the union over layers of
a token's top outcomes; each $p^\ell$ is restricted to it and renormalised, and a state that keeps
less than half its mass is left out. With so few points (a hundred) the exact $W_2$ of the network
simplex costs a millisecond and has no entropic bias, so nothing needs debiasing.

Beside it, between the same ends of each segment: the same states in *shuffled* order, and the
*straight* line of logits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from flowscope.errors import TapError
from flowscope.flows import Segment
from flowscope.probes.heads.curvature import hashed
from flowscope.probes.layers.depth import Rows
from flowscope.probes.layers.paths import sampled_rows
from flowscope.probes.reducer import Arrays, Reducer
from flowscope.tap import BlockPass
from flowscope.transport.rows import row_wasserstein

__all__ = ["PATHS", "EvolutionProbe", "Inequality", "variational_inequality"]

PATHS = ("model", "shuffled", "straight")
_KEPT = 0.5


class Inequality(NamedTuple):
    r"""Per step of a path: slack and progress (relative, NaN where undefined), and whether F fell.

    ``progress`` is $1 - W_2^2(p^\ell, p^L) / W_2^2(p^{\ell-1}, p^L)$.
    """

    slack: NDArray[np.float64]
    progress: NDArray[np.float64]
    fell: NDArray[np.float64]


def variational_inequality(
    path: Float[NDArray[np.float64], "states n"],
    target: Float[NDArray[np.float64], "n"],
    metric: Float[NDArray[np.float64], "n n"],
) -> Inequality:
    """Slack of the inequality for each step of a path of distributions towards a target.

    Examples
    --------
    >>> line = np.abs(np.subtract.outer(np.arange(2.0), np.arange(2.0)))
    >>> path, target = np.array([[0.9, 0.1], [0.5, 0.5]]), np.array([0.2, 0.8])
    >>> found = variational_inequality(path, target, line)
    >>> found.progress.round(3), bool(found.fell[0])
    (array([0.571]), True)
    """
    ahead = row_wasserstein(path, target, metric, order=2).numpy() ** 2
    step = row_wasserstein(path[:-1], path[1:], metric, order=2).numpy() ** 2
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(path > 0, path * np.log(path / target), 0.0)
        energy = ratio.sum(-1)
        fall = energy[:-1] - energy[1:]
        cost = np.where(fall > 0, step * energy[1:] / fall, np.nan)
        slack = (ahead[:-1] - ahead[1:] - cost) / ahead[:-1]
        progress = 1 - ahead[1:] / ahead[:-1]
    known = np.isfinite(progress) & np.isfinite(fall)
    return Inequality(
        np.where(known, slack, np.nan),
        np.where(known, progress, np.nan),
        np.where(known, (fall > 0).astype(np.float64), np.nan),
    )


class EvolutionProbe(Reducer):
    """Slack of the inequality along the output path of a few sampled tokens per prompt.

    `arrays` has one row per token: ``evi_prompt``, ``evi_position``, ``evi_kept`` ``[rows, L + 1]``
    (mass kept on the union of top outcomes) and per path of `PATHS` ``evi_slack_*``,
    ``evi_progress_*``, ``evi_fell_*`` ``[rows, L]``, NaN where undefined.

    Parameters
    ----------
    readout
        From chosen hidden states to logits.
    unembedding
        Rows of the output matrix, ``[V, d]``.
    segments
        The parts of depth the references are drawn on.
    positions
        Tokens per prompt, by the smallest hash.
    top
        How many outcomes of each layer enter the union.
    """

    keys = ("evi_prompt", "evi_position")

    def __init__(
        self,
        readout: Callable[[Tensor], Tensor],
        unembedding: Float[Tensor, "V d"],
        segments: Sequence[Segment],
        *,
        positions: int = 4,
        top: int = 8,
    ) -> None:
        super().__init__()
        self._readout, self._unembedding = readout, unembedding
        self._segments, self._positions, self._top = segments, positions, top
        self._rows: Rows | None = None
        self._chosen: NDArray[np.int64] = np.zeros(0, np.int64)
        self._states: list[Tensor] = []

    def begin(self, rows: Rows) -> None:
        """A batch starts; its passes follow."""
        self._rows, self._states = rows, []
        self._chosen = sampled_rows(rows, self._positions)

    def update(self, event: BlockPass) -> None:
        """One block of the batch; the first one also gives layer 0."""
        if self._rows is None:
            raise TapError("An evolution probe must begin a batch before it is updated.")
        for hidden in ([event.hidden_in] if event.site.index == 0 else []) + [event.hidden_out]:
            rows = self._rows.taken(hidden)
            wide = torch.promote_types(rows.dtype, torch.float32)
            self._states.append(rows[torch.as_tensor(self._chosen, device=rows.device)].to(wide))

    def end(self) -> None:
        """The batch is over; a few scalars per token and layer stay."""
        assert self._rows is not None
        tokens = [
            self._token(number, torch.stack([state[k] for state in self._states]))
            for k, number in enumerate(self._chosen)
        ]
        arrays: Arrays = {name: np.stack([t[name] for t in tokens]) for name in tokens[0]}
        arrays["evi_prompt"] = self._rows.prompt[self._chosen]
        arrays["evi_position"] = self._rows.position[self._chosen]
        self.take(arrays)
        self._rows, self._states = None, []

    def _token(self, number: int, states: Tensor) -> Arrays:
        assert self._rows is not None
        logits = self._readout(states).cpu().double()
        top = torch.unique(logits.topk(min(self._top, logits.shape[-1]), -1).indices)
        points = self._unembedding[top.to(self._unembedding.device)].detach().cpu().double()
        d = torch.cdist(points, points, compute_mode="donot_use_mm_for_euclid_dist").numpy()
        kept = torch.softmax(logits, -1)[:, top].sum(-1).numpy()
        z = logits[:, top].numpy()
        prompt, position = int(self._rows.prompt[number]), int(self._rows.position[number])
        order = np.argsort(hashed(prompt, np.arange(len(z)), salt=1 + position), kind="stable")
        found: Arrays = {"evi_kept": kept}
        for name in PATHS:
            whole = Inequality(*(np.full(len(z) - 1, np.nan) for _ in range(3)))
            for segment in self._segments:
                path, enough = _path(name, z, kept, segment, order)
                part = variational_inequality(_law(path), _law(z[-1]), (d + d.T) / 2)
                for into, values in zip(whole, part, strict=True):
                    into[segment.first - 1 : segment.last] = np.where(enough, values, np.nan)
            for field, values in whole._asdict().items():
                found[f"evi_{field}_{name}"] = values
        return found


def _law(z: NDArray[np.float64]) -> NDArray[np.float64]:
    e = np.exp(z - z.max(-1, keepdims=True))
    found: NDArray[np.float64] = e / e.sum(-1, keepdims=True)
    return found


def _path(
    name: str,
    z: NDArray[np.float64],
    kept: NDArray[np.float64],
    segment: Segment,
    order: NDArray[np.intp],
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Logits along a path between the ends of a segment, and which of its steps may be read."""
    first, last = segment.first - 1, segment.last
    if name == "straight":
        t = np.linspace(0, 1, last - first + 1)[:, None]
        both = min(kept[first], kept[last]) >= _KEPT
        return (1 - t) * z[first] + t * z[last], np.full(last - first, both)
    inside = np.arange(first + 1, last)
    if name == "shuffled":
        inside = order[(order > first) & (order < last)]
    places = np.concatenate([[first], inside, [last]])
    good = kept[places] >= _KEPT
    return z[places], good[:-1] & good[1:]
