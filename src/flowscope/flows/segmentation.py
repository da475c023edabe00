r"""Cutting the depth where it jumps, offline, from the relative steps of all layers.

With $r_\ell$ the median over tokens of $\lVert\Delta z^\ell\rVert^2 / \lVert z^\ell\rVert^2$, layer
$\ell$ is a candidate cut when

$$ \log r_\ell > \mathrm{median}(\log r) + 3 \cdot 1.4826 \cdot \mathrm{MAD}(\log r) . $$

Candidates within three layers of each other are one event and its largest step is the cut; at most
$\max(2, L/10)$ cuts are kept, the largest. A cut layer is a *jump*. What lies between jumps is a
*segment* when it has at least $\max(3, L/6)$ layers, else it is too short to be judged as a flow
and is called a jump too. (Source 000, N.6 and App. K.1, names neither scale nor length: ours.)
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike, NDArray

from flowscope.errors import InvalidInputError

__all__ = ["Segment", "jump_layers", "segments_of"]

_NEAR = 3
_SPREAD = 3 * 1.4826


@dataclass(frozen=True, kw_only=True)
class Segment:
    """A run of layers ``first`` to ``last`` (both counted, from 1) and whether it is a jump."""

    first: int
    last: int
    kind: Literal["segment", "jump"]

    def __len__(self) -> int:
        return self.last - self.first + 1


def segments_of(relative_steps: Float[ArrayLike, " L"]) -> tuple[Segment, ...]:
    """The segments and jumps that make up layers 1 to L, in order.

    Parameters
    ----------
    relative_steps
        One relative step per layer, 1 to L; not negative.

    Raises
    ------
    InvalidInputError
        When there is no layer, or a step is negative, NaN or infinite.

    Notes
    -----
    O(L log L). Scaling every step by one factor changes nothing.

    Examples
    --------
    >>> steps = [3.3, 0.1, 0.03, 0.02, 0.03, 0.02, 0.02, 0.03, 0.02, 0.9]
    >>> [(s.first, s.last, s.kind) for s in segments_of(steps)]
    [(1, 1, 'jump'), (2, 9, 'segment'), (10, 10, 'jump')]
    """
    steps = np.asarray(relative_steps, np.float64)
    if steps.ndim != 1 or not len(steps) or not np.isfinite(steps).all() or (steps < 0).any():
        raise InvalidInputError(
            "Segmentation needs one finite relative step, not negative, per layer; got "
            f"{steps.tolist() if steps.size < 40 else steps.shape}."
        )
    cuts = jump_layers(steps)
    shortest = max(3.0, len(steps) / 6)
    found: list[Segment] = []
    start = 1
    for cut in [*cuts, len(steps) + 1]:
        if start < cut:
            kind: Literal["segment", "jump"] = "segment" if cut - start >= shortest else "jump"
            found.append(Segment(first=start, last=cut - 1, kind=kind))
        if cut <= len(steps):
            found.append(Segment(first=cut, last=cut, kind="jump"))
        start = cut + 1
    return tuple(found)


def jump_layers(steps: Float[NDArray[np.float64], " L"]) -> list[int]:
    """Layers whose step stands out, after clustering and capping, in order."""
    logs = np.log(np.maximum(steps, np.finfo(np.float64).tiny))
    middle = np.median(logs)
    spread = np.median(np.abs(logs - middle))
    if spread == 0:  # more than half of the layers step alike: any spread there is, is elsewhere
        spread = np.mean(np.abs(logs - middle)) / 1.4826
    out = np.zeros(len(logs), bool) if spread == 0 else logs > middle + _SPREAD * spread
    clusters: list[list[int]] = []
    for place in np.nonzero(out)[0]:
        if clusters and place - clusters[-1][-1] <= _NEAR:
            clusters[-1].append(int(place))
        else:
            clusters.append([int(place)])
    heads = [max(cluster, key=lambda i: steps[i]) for cluster in clusters]
    allowed = max(2, len(steps) // 10)
    return sorted(i + 1 for i in sorted(heads, key=lambda i: -steps[i])[:allowed])
