r"""Cutting the depth where it jumps: offline, from the relative steps of all layers at once.

With r_ℓ the median over tokens of ‖Δz^ℓ‖²/‖z^ℓ‖², layer ℓ is a candidate if

.. math:: \log r_\ell > \operatorname{median}(\log r) + 3 \cdot 1.4826 \cdot
          \operatorname{MAD}(\log r),

three robust standard deviations above the middle; layers that do not move at all (r = 0) are not
candidates and set no scale. Candidates at most three layers apart are one *cut*, which spans them
all: the layers between two of them would be too short to be judged anyway, and to cut at the
largest alone would leave the others inside a segment that is supposed to be smooth. At most
max(2, L/10) cuts are kept, those with the largest steps. What lies between cuts is a *segment* if
it has at least max(3, L/6) layers; a shorter remnant, like a cut, is a *jump*, and what depends on
smoothness abstains there.

If more than half of the log r are equal, MAD = 0 and the mean absolute deviation takes its place
(times 1.2533, its factor for a normal law); if all are equal there is no cut. Source 000 K.2
clusters within three layers, asks for five layers and at most L/10 segments, and takes its
candidates from the online detector; see :mod:`flowscope.flows.detector` for that one.
"""

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from jaxtyping import Float64
from numpy.typing import NDArray

from flowscope.errors import InvalidInputError
from flowscope.simplex.probability import ArrayLike

__all__ = ["Jump", "Segment", "jump_report", "segments_of"]

Array: TypeAlias = NDArray[np.float64]

_NEIGHBOURS = 3
_DEVIATIONS = 3.0
_MAD_TO_SD = 1.4826
_MEAN_DEVIATION_TO_SD = math.sqrt(math.pi / 2)
_ROUNDING = 1e-9  # logarithms closer than this are equal


@dataclass(frozen=True, kw_only=True)
class Segment:
    """A run of layers.

    Attributes
    ----------
    first, last : its layers, counted from 1, both included; layer ℓ is the step z^{ℓ−1} → z^ℓ.
    kind : "segment" where the path is smooth, "jump" where it is not or is too short to say.
    """

    first: int
    last: int
    kind: Literal["segment", "jump"]

    def __len__(self) -> int:
        return self.last - self.first + 1


@dataclass(frozen=True, kw_only=True)
class Jump:
    """What happens at a cut.

    Attributes
    ----------
    layer : the layer of its largest step, counted from 1.
    relative_step : r = ‖Δz‖²/‖z‖² there.
    total_variation : how far p moves there.
    velocity_change : its speed √r over the mean speed of the layers beside it; ∞ if they stand
        still.
    """

    layer: int
    relative_step: float
    total_variation: float
    velocity_change: float


def segments_of(relative_steps: Float64[np.ndarray, " L"] | ArrayLike) -> tuple[Segment, ...]:
    r"""Segments and jumps that make up layers 1 to L, in order.

    .. math:: \{1, \dots, L\} = \bigsqcup_i \{\text{first}_i, \dots, \text{last}_i\}

    Parameters
    ----------
    relative_steps : r₁, …, r_L, one per layer.

    Raises
    ------
    InvalidInputError
        If there is no layer, or a step is NaN, infinite or negative.

    Notes
    -----
    O(L log L). A common factor of all steps changes nothing, and neither does the direction in
    which the layers are read. Paths of one or two layers are all jump. Source 000 K.2, with the
    deviations of the module's head.

    Examples
    --------
    >>> steps = [3.3, 0.1, 0.03, 0.02, 0.03, 0.02, 0.02, 0.03, 0.02, 0.9]
    >>> [(s.first, s.last, s.kind) for s in segments_of(steps)]
    [(1, 1, 'jump'), (2, 9, 'segment'), (10, 10, 'jump')]
    """
    steps = _checked(relative_steps)
    L = len(steps)
    found: list[Segment] = []
    begin = 1
    for first, last in [*_cuts(steps), (L + 1, L + 1)]:
        if begin < first:
            long = first - begin >= max(3.0, L / 6)
            kind: Literal["segment", "jump"] = "segment" if long else "jump"
            found.append(Segment(first=begin, last=first - 1, kind=kind))
        if first <= L:
            found.append(Segment(first=first, last=last, kind="jump"))
        begin = last + 1
    return tuple(found)


def jump_report(
    relative_steps: Float64[np.ndarray, " L"] | ArrayLike,
    total_variation: Float64[np.ndarray, " L"] | ArrayLike,
) -> tuple[Jump, ...]:
    r"""What happens at each cut, in order of depth.

    .. math:: \text{velocity change} = \frac{\sqrt{r_\ell}}
              {\tfrac12\left(\sqrt{r_{\ell-1}} + \sqrt{r_{\ell+1}}\right)}

    Parameters
    ----------
    relative_steps : r₁, …, r_L, as for :func:`segments_of`.
    total_variation : median over tokens of TV(p^{ℓ−1}, p^ℓ), one per layer.

    Returns
    -------
    One report per cut, at its largest step. At the first or last layer the one neighbour that is
    there counts; remnants that are jumps for want of length are not reported.

    Raises
    ------
    InvalidInputError
        As :func:`segments_of`, and if the two do not have one number per layer each.

    Notes
    -----
    O(L log L). Source 000 K.2 item 4 asks for jumps of the velocity; from norms alone this ratio is
    what can be said, since the angle between two steps is not known.

    Examples
    --------
    >>> steps = [0.01, 0.02, 0.01, 0.02, 0.64, 0.01, 0.02, 0.01]
    >>> [(j.layer, round(j.velocity_change, 2)) for j in jump_report(steps, [0.1] * 8)]
    [(5, 6.63)]
    """
    steps, moved = _checked(relative_steps), np.asarray(total_variation, np.float64)
    if moved.shape != steps.shape:
        raise InvalidInputError(
            f"total_variation must have one number per layer, {len(steps)}; found shape "
            f"{moved.shape}."
        )
    found = []
    for first, last in _cuts(steps):
        layer = first + int(np.argmax(steps[first - 1 : last]))
        speed = np.sqrt(steps)
        beside = [speed[i - 1] for i in (layer - 1, layer + 1) if 1 <= i <= len(steps)]
        typical = float(np.mean(beside))
        found.append(
            Jump(
                layer=layer,
                relative_step=float(steps[layer - 1]),
                total_variation=float(moved[layer - 1]),
                velocity_change=float(speed[layer - 1]) / typical if typical > 0 else math.inf,
            )
        )
    return tuple(found)


def _checked(relative_steps: ArrayLike) -> Array:
    steps = np.asarray(relative_steps, np.float64)
    if steps.ndim != 1 or len(steps) == 0:
        raise InvalidInputError(
            f"Segmentation needs one relative step per layer and at least one layer; found shape "
            f"{steps.shape}. Pass the medians over tokens."
        )
    bad = np.flatnonzero(~(np.isfinite(steps) & (steps >= 0)))
    if len(bad):
        raise InvalidInputError(
            f"A relative step must be finite and not negative; found {steps[bad[0]]:.6g} at layer "
            f"{bad[0] + 1}. Look for tokens without a state there."
        )
    return steps


def _cuts(steps: Array) -> list[tuple[int, int]]:
    """First and last layer of each cut that is kept, in order."""
    clusters: list[tuple[int, int]] = []
    for layer in (np.flatnonzero(_candidates(steps)) + 1).tolist():
        if clusters and layer - clusters[-1][1] <= _NEIGHBOURS:
            clusters[-1] = (clusters[-1][0], layer)
        else:
            clusters.append((layer, layer))
    clusters.sort(key=lambda cut: -steps[cut[0] - 1 : cut[1]].max())
    return sorted(clusters[: max(2, len(steps) // 10)])


def _candidates(steps: Array) -> NDArray[np.bool_]:
    moving = steps > 0
    logs = np.log(steps, out=np.full_like(steps, -np.inf), where=moving)
    if not moving.any():
        return moving
    middle = np.median(logs[moving])
    away = np.abs(logs[moving] - middle)
    away[away < _ROUNDING] = 0.0
    deviation = _MAD_TO_SD * np.median(away) or _MEAN_DEVIATION_TO_SD * np.mean(away)
    return np.asarray(moving & (logs > middle + max(_DEVIATIONS * deviation, _ROUNDING)))
