r"""Whether anything turns, over several layers that share their signs, and how much at most.

.. math:: t_\ell = \frac{R_{{\rm norm},\ell} - m_\ell}{s_\ell}, \qquad
          p = \frac{1 + \#\{\max_\ell t^\pm_\ell \ge \max_\ell t_\ell\}}{1 + B}

m is the margin of a layer, the mean of its controls or .01 where that is more; s is the spread of
its null draws. Signs are shared between layers, so that the maximum knows their dependence.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from flowscope.errors import InvalidInputError
from flowscope.flows.hodge.estimates import Estimate, averaged_estimate, estimate
from flowscope.flows.hodge.reading import RotationReading

__all__ = [
    "REPRESENTED",
    "RotationAmount",
    "RotationPresence",
    "rotation_amount",
    "rotation_presence",
]

# A share of the motion below this is too little to speak of the motion.
REPRESENTED = 0.05
_HALF = 0.5


@dataclass(frozen=True, kw_only=True, eq=False)
class RotationPresence:
    """Whether fields turn more than gradients on the same points seem to.

    Attributes
    ----------
    effect
        Mean over the layers used of R_norm less the mean of the controls, with its interval.
    p
        Of "R_norm is at most the margin in every layer", by the maximum over layers.
    layer_p
        The same for each layer used, adjusted for the maximum.
    used
        Which readings had a represented share of at least .05.
    represented
        Mean represented share over all readings.
    informative
        Whether any reading was used; if not, effect and p are NaN.
    """

    effect: Estimate
    p: float
    layer_p: tuple[float, ...]
    used: tuple[int, ...]
    represented: Estimate
    informative: bool


@dataclass(frozen=True, kw_only=True, eq=False)
class RotationAmount:
    """Bounds of the share of the whole motion that turns.

    Attributes
    ----------
    rotation, gradient
        Means over layers of R/E and G/E.
    lower, upper
        R/E and 1 − G/E.
    outcome
        Of "most of the motion is transport": ``"holds"`` where 1 − G/E lies below one half with
        its interval, ``"fails"`` where R/E lies above it with its interval, else ``"abstains"``.
    """

    rotation: Estimate
    gradient: Estimate
    represented: Estimate
    outcome: Literal["holds", "fails", "abstains"]

    @property
    def lower(self) -> float:
        """R/E, a lower bound."""
        return self.rotation.value

    @property
    def upper(self) -> float:
        """1 − G/E, an upper bound."""
        return 1 - self.gradient.value


def rotation_presence(readings: Sequence[RotationReading]) -> RotationPresence:
    r"""Judge whether anything turns in one or several layers.

    .. math:: H_0:\; R_{\rm norm} \le \max(\text{control}, .01) \text{ in every layer}

    Parameters
    ----------
    readings : of layers, with the same groups and the same seed.

    Raises
    ------
    InvalidInputError
        If there are none, or they do not share their draws.

    Notes
    -----
    The variance of the mean of nine controls is in the interval. O(L·B).

    Examples
    --------
    >>> from flowscope.flows.hodge.reading import rotation_reading
    >>> g = torch.Generator().manual_seed(0)
    >>> x = torch.randn(1000, 2, generator=g, dtype=torch.float64)
    >>> u = torch.stack([-x[:, 1], x[:, 0]], 1) - x + torch.randn(1000, 2, generator=g)
    >>> found = rotation_presence([rotation_reading(x, u, groups=None, seed=0)])
    >>> found.p < 0.01, found.informative
    (True, True)
    """
    _check(readings)
    represented = averaged_estimate([one.represented for one in readings])
    used = [k for k, one in enumerate(readings) if one.represented.value >= REPRESENTED]
    if not used:
        lost = averaged_estimate([one.normalised for one in readings])
        nan = math.nan
        return RotationPresence(
            effect=Estimate(
                value=nan, low=nan, high=nan, level=lost.level, pseudo_values=lost.pseudo_values
            ),
            p=nan, layer_p=(), used=(), represented=represented, informative=False,
        )  # fmt: skip
    layers = [readings[k] for k in used]
    null = torch.stack([one.null for one in layers], 1)
    spread = null.std(0).clamp_min(1e-12)
    above = torch.tensor([one.normalised.value - one.margin for one in layers]).to(null) / spread
    largest = (null / spread).amax(1)
    layer_p = [(1 + int((largest >= t).sum())) / (1 + len(largest)) for t in above]
    return RotationPresence(
        effect=_effect(layers),
        p=min(layer_p),
        layer_p=tuple(layer_p),
        used=tuple(used),
        represented=represented,
        informative=True,
    )


def rotation_amount(readings: Sequence[RotationReading]) -> RotationAmount:
    r"""Judge whether most of the motion is transport, from bounds of the share that turns.

    .. math:: \frac RE \;\le\; \text{share that turns} \;\le\; 1 - \frac GE

    Parameters
    ----------
    readings : of layers, with the same groups and the same seed.

    Raises
    ------
    InvalidInputError
        If there are none, or they do not share their draws.

    Examples
    --------
    >>> from flowscope.flows.hodge.reading import rotation_reading
    >>> g = torch.Generator().manual_seed(0)
    >>> x = torch.randn(1000, 2, generator=g, dtype=torch.float64)
    >>> rotation_amount([rotation_reading(x, -x, groups=None, seed=0)]).outcome
    'holds'
    """
    _check(readings)
    rotation = averaged_estimate([one.rotation for one in readings])
    gradient = averaged_estimate([one.gradient for one in readings])
    outcome: Literal["holds", "fails", "abstains"] = "abstains"
    if gradient.low > _HALF:
        outcome = "holds"
    elif rotation.low > _HALF:
        outcome = "fails"
    return RotationAmount(
        rotation=rotation,
        gradient=gradient,
        represented=averaged_estimate([one.represented for one in readings]),
        outcome=outcome,
    )


def _effect(layers: Sequence[RotationReading]) -> Estimate:
    mean = averaged_estimate([one.normalised for one in layers])
    control = math.fsum(one.control for one in layers) / len(layers)
    drawn = torch.tensor([one.controls for one in layers], dtype=torch.float64).mean(0)
    # The k-th controls of all layers share their kind; the nine means are what was drawn.
    extra = float(drawn.var()) / len(drawn)
    return estimate(mean.value - control, mean.pseudo_values - control, mean.level, extra)


def _check(readings: Sequence[RotationReading]) -> None:
    if not readings:
        raise InvalidInputError("At least one reading is needed; found none. Read a layer first.")
    draws = {len(one.null) for one in readings}
    if len(draws) != 1:
        raise InvalidInputError(
            f"Readings must share their signs; found {sorted(draws)} draws. Read every layer with "
            "the same settings, groups and seed."
        )
