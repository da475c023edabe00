r"""Tables of the linear response: gains, what 004 assumes of them, commitment mode by mode.

Source 004 assumes (eqs 59–61, 56), and here it is measured: the pattern is weak,
$|\pi_k| \ll |\chi_k|$; the MLP treats modes alike; routing prefers leading modes; gains multiply
from layer to layer. A mode is predicted to commit where its measured gain crosses one, because a
derivative of the live block already has the score in it: $\kappa = 1$ (eq 51) is that crossing
(E84).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray

from flowscope.errors import InvalidInputError
from flowscope.probes import Arrays
from flowscope.replica import (
    MixtureMoments,
    ModalProduct,
    StructuralAssumptions,
    mixture_moments,
    mode_energies,
    routing_factor,
    score_gain,
    sigmoid_fit,
    speciation_parameter,
)

__all__ = [
    "StepResponse",
    "assumption_table",
    "first_crossing",
    "gain_table",
    "leading_projections",
    "mode_commitment_table",
    "no_separation",
    "speciation_of_mode",
    "speciation_table",
]


Array = NDArray[np.float64]


_CHANNELS = ("direct", "routing", "query", "key")


# Rules of the assumptions, set before anything was measured.
_WEAK_PATTERN, _ALIKE, _MULTIPLIES = 0.2, 0.2, 0.1


# A mode under coupling is the uncoupled one of its rank when it has at least half of its square.
_SAME_MODE = 0.5


# A sigmoid is a transition when it leaves this share of what a straight line leaves, and its width
# is this share of the steps read.
_BETTER_THAN_A_LINE, _NARROW = 1 / 4, 1 / 8


_ROUNDING = 1e-9


@dataclass(frozen=True, kw_only=True, eq=False)
class StepResponse:
    """Response of every block at one reverse step, without coupling.

    Attributes
    ----------
    step, near
        The step, and the step next to it whose differences were read.
    channels
        Gains through the direct, routing, query and key channel.
    eigenvalue, residual
        Leading eigenvalue (real part) of the first state; NaN where it was not asked for or did not
        settle.
    products
        Product of the gains of all layers, and the gain of the layers run one after another.
    amplitudes, response
        Finite differences along the first mode of each layer and what the block makes of them; NaN
        where it was not asked.
    """

    step: int
    near: int
    channels: Float[Array, "4 layers modes states"]
    eigenvalue: Float[Array, "layers"]
    residual: Float[Array, "layers"]
    products: Float[Array, "2 modes states"]
    amplitudes: Float[Array, "layers n"]
    response: Float[Array, "layers n"]

    def gains(self, g: float) -> Float[Array, "4 layers modes states"]:
        """The channels under a coupling: values and keys are gated, the rest is not."""
        rho = routing_factor(g)
        return np.asarray(self.channels * np.array([1.0, rho, 1.0, rho])[:, None, None, None])


def gain_table(
    responses: Sequence[StepResponse], couplings: Sequence[float], band: int
) -> pd.DataFrame:
    """Gains of the leading and trailing modes by coupling, layer and step.

    Means over the modes of a band and over states. ``gain_low`` and ``gain_high`` are the range
    over states, NaN for a single one. The eigenvalue and its residual are those of g = 0 at the
    middle step, in the rows of both bands; NaN elsewhere.
    """
    rows = []
    for g in couplings:
        for found in responses:
            gains = found.gains(g)
            for layer in range(gains.shape[1]):
                told = found.eigenvalue[layer], found.residual[layer]
                for name, modes in (("lead", slice(None, band)), ("trail", slice(-band, None))):
                    where = {"g": g, "layer": layer + 1, "step": found.step, "band": name}
                    at_zero = told if g == 0 else (math.nan, math.nan)
                    rows.append(where | _banded(gains[:, layer, modes], *at_zero))
    return pd.DataFrame(rows)


def _banded(
    gains: Float[Array, "4 modes states"], eigenvalue: float, residual: float
) -> dict[str, float]:
    by_state = gains.sum(0).mean(0)
    several = len(by_state) > 1
    means = gains.mean((1, 2))
    return {
        "gain": float(means.sum()),
        **dict(zip(_CHANNELS, means.tolist(), strict=True)),
        "gain_low": float(by_state.min()) if several else math.nan,
        "gain_high": float(by_state.max()) if several else math.nan,
        "eigenvalue": float(eigenvalue),
        "residual": float(residual),
        "n": gains[0].size,
    }


def assumption_table(responses: Sequence[StepResponse], band: int) -> pd.DataFrame:
    r"""What 004 takes for granted, over all readings: layer × step × state, without coupling.

    Eq 59: the largest $|\pi_k|/|\chi_k|$ of the leading modes is at most a fifth. Eq 60: the
    standard deviation of $\lambda^{\rm MLP}$ over both bands by the size of its mean is at most a
    fifth. Eq 61: $\chi$ of the leading modes is above that of the trailing ones, in the mean. Eq
    56: the product of gains over the whole depth and the gain of the composition differ by at most
    .1 in the logarithm, a reading for each mode of the first layer, state and step; where the two
    differ in sign it does not hold and there is no logarithm.
    """
    channels = np.stack([found.channels for found in responses], 1)  # 4, steps, layers, modes, …
    modes_first = torch.from_numpy(np.moveaxis(channels, 3, 1).copy())
    direct, chi, query, key = modes_first
    measured = StructuralAssumptions(
        chi=chi,
        pi=query + key,
        mlp=direct - 1,
        chi_leading=chi[:band].mean(0),
        chi_trailing=chi[-band:].mean(0),
    )
    product, composed = torch.from_numpy(np.stack([found.products for found in responses], 1))
    logs = ModalProduct(product=product, measured=composed).log_ratio.abs().numpy().ravel()
    known = torch.isfinite(product).numpy().ravel()
    turned = int((known & ~np.isfinite(logs)).sum())
    without = f"; {turned} of {int(known.sum())} differ in sign and have none" if turned else ""
    pattern = measured.pattern_share[:band].amax(0).numpy().ravel()
    spread = measured.mlp_spread.numpy().ravel()
    order = measured.chi_difference.numpy().ravel()
    return pd.DataFrame(
        [
            _assumption("59", "largest |π|/|χ| of the leading modes", pattern,
                        pattern <= _WEAK_PATTERN, f"at most {_WEAK_PATTERN}"),
            _assumption("60", "standard deviation of λ of the MLP over modes / |mean|", spread,
                        spread <= _ALIKE, f"at most {_ALIKE}"),
            _assumption("61", "χ of leading less χ of trailing modes", order, order > 0,
                        "above 0"),
            _assumption("56", f"|log(product of gains / gain of the composition)|{without}",
                        logs[known], logs[known] <= _MULTIPLIES,
                        f"at most {_MULTIPLIES} over the whole depth within one step"),
        ]
    )  # fmt: skip


def _assumption(
    equation: str, quantity: str, values: Array, holds: NDArray[np.bool_], rule: str
) -> dict[str, Any]:
    finite = values[np.isfinite(values)]
    told = [math.nan] * 3
    if len(finite):
        told = [float(np.median(finite)), float(finite.min()), float(finite.max())]
    return {
        "equation": equation,
        "quantity": quantity,
        "median": told[0],
        "least": told[1],
        "largest": told[2],
        "share": float(holds.mean()) if len(holds) else math.nan,
        "n": len(values),
        "rule": rule,
    }


def first_crossing(steps: Sequence[int], gains: Float[Array, "steps"]) -> float:
    """First step at which a gain, linear between the steps read, is one; NaN if it never is.

    Examples
    --------
    >>> import numpy as np
    >>> first_crossing([0, 4, 8], np.array([1.2, 0.8, 1.1])), first_crossing([0, 4], np.ones(2) * 2)
    (2.0, nan)
    """
    above = np.asarray(gains, dtype=np.float64) - 1
    for k, value in enumerate(above):
        if value == 0:
            return float(steps[k])
        if k + 1 < len(above) and value * above[k + 1] < 0:
            share = value / (value - above[k + 1])
            return float(steps[k] + share * (steps[k + 1] - steps[k]))
    return math.nan


def mode_commitment_table(
    responses: Sequence[StepResponse],
    readings: Mapping[float, Arrays],
    ranks: Int[NDArray[np.int64], "layers modes"],
    overlaps: Mapping[float, Float[Array, "layers modes"]],
) -> pd.DataFrame:
    """For each mode of a block's input: where its gain crosses one, and where its energy turns.

    Parameters
    ----------
    responses
        Steps in order.
    readings
        Gram matrices of every block's output by coupling, which are those of the next one's input:
        so layers start at 2.
    ranks
        Which modes were followed, from 1.
    overlaps
        Squared inner product of each mode with the one of its rank under each coupling. Gains
        are taken along the uncoupled modes; where a coupled mode is another one, nothing is told.

    Notes
    -----
    ``measured`` is the midpoint of a sigmoid fitted to the logarithm of the mode's energy over the
    kept steps, where it fits far better than a straight line does and is narrow: of random walks of
    16 to 26 steps about 5 % pass. ``because`` also says why nothing is predicted.
    """
    steps = [found.step for found in responses]
    rows = []
    for g, overlap in overlaps.items():
        gains = np.stack([found.gains(g).sum(0).mean(-1) for found in responses], -1)
        for layer in range(2, len(ranks) + 1):
            energies = _log_energies(readings[g]["gram"][layer - 2])
            for place, rank in enumerate(ranks[layer - 1]):
                mine = gains[layer - 1, place]
                predicted, shared = first_crossing(steps, mine), float(overlap[layer - 1, place])
                told = _turn(readings[g]["kept"], energies[:, rank - 1])
                if shared < _SAME_MODE:
                    other = f"mode {rank} under this coupling differs (overlap {shared:.2f})"
                    told = {"measured": math.nan, "status": "abstained", "because": other}
                if math.isnan(predicted):
                    side = "above" if mine[0] > 1 else "below"
                    never = f"the gain stays {side} 1 ({mine.min():.4g} to {mine.max():.4g})"
                    told["because"] = "; ".join(filter(None, (told["because"], never)))
                where = {"g": g, "layer": layer, "mode": int(rank), "predicted": predicted}
                rows.append(where | told | {"overlap": shared})
    names = ["g", "layer", "mode", "predicted", "measured", "status", "because", "overlap"]
    return pd.DataFrame(rows, columns=names)


def _log_energies(grams: Float[Array, "kept rows rows"]) -> Float[Array, "kept modes"]:
    with np.errstate(divide="ignore"):
        return np.stack([np.log(mode_energies(gram).energies) for gram in grams])


def _turn(kept: NDArray[np.int64], curve: Float[Array, "kept"]) -> dict[str, Any]:
    """Midpoint of a mode's energy, or why it has none."""
    none = {"measured": math.nan, "status": "no transition"}
    try:
        fit = sigmoid_fit(kept.astype(np.float64), curve)
    except InvalidInputError as error:
        return none | {"status": "abstained", "because": str(error)}
    x, length = kept.astype(np.float64), float(kept[-1] - kept[0])
    size, left = abs(fit.after - fit.before), len(kept) * fit.residual**2
    line = float(((curve - np.polyval(np.polyfit(x, curve, 1), x)) ** 2).sum())
    why = ""
    if not kept[0] <= fit.midpoint <= kept[-1]:
        why = f"the midpoint of its energy, {fit.midpoint:.3g}, lies outside the measured steps"
    elif not size > max(2 * fit.residual, _ROUNDING * np.abs(curve).max()):
        why = f"log energy changes by {size:.3g}, within twice what the fit leaves "
        why += f"({fit.residual:.3g}) or within rounding"
    elif left > _BETTER_THAN_A_LINE * line:
        why = "a straight line fits its log energy nearly as well as a sigmoid does (sums of "
        why += f"squares {line:.3g} and {left:.3g})"
    elif fit.width > _NARROW * length:
        why = f"its log energy changes too slowly: width {fit.width:.3g} of {length:g} steps"
    if why:
        return none | {"because": why}
    return {"measured": fit.midpoint, "status": "ok", "because": ""}


def leading_projections(gram: Float[Array, "two_M two_M"]) -> Float[Array, "M"]:
    """Projections of the later differences of every pair on the first mode, from a Gram matrix.

    Examples
    --------
    >>> from flowscope.replica import stacked_gram
    >>> V0 = torch.tensor([[3.0, 0.0], [0.0, 1.0]])
    >>> np.abs(leading_projections(stacked_gram(V0, 2 * V0).numpy())).round(9).tolist()
    [6.0, 0.0]
    """
    pairs = len(gram) // 2
    values, vectors = np.linalg.eigh(gram[:pairs, :pairs])
    return np.asarray(gram[pairs:, :pairs] @ vectors[:, -1] / math.sqrt(values[-1]))


def speciation_table(responses: Sequence[StepResponse], reading: Arrays) -> pd.DataFrame:
    """Speciation parameter along the first mode of every block's input, or why there is none.

    ``step`` is the kept step next to the one at which the block was run.
    """
    kept = [int(step) for step in reading["kept"]]
    rows = []
    for found in responses:
        place = kept.index(found.near)
        for layer in range(2, len(found.response) + 1):
            p = leading_projections(reading["gram"][layer - 2, place])
            told = speciation_of_mode(
                found.amplitudes[layer - 1], found.response[layer - 1], projections=p
            )
            rows.append({"layer": layer, "step": found.near, "mode": 1} | told)
    names = ["eta", "m2", "c", "gamma", "kappa", "status", "because"]
    return pd.DataFrame(rows, columns=["layer", "step", "mode", *names])


def no_separation(moments: MixtureMoments) -> str | None:
    """Why projections are no mixture of two, or None where they are."""
    if not moments.c > 0:
        return "the projections have no spread around ±m, c = 0"
    if moments.m2 == 0 or not moments.separation_interval[0] > 0:
        return "the projections show no separation beyond noise"
    return None


def speciation_of_mode(
    amplitudes: Float[Array, "n"],
    response: Float[Array, "n"],
    *,
    projections: Float[Array, "pairs"],
) -> dict[str, Any]:
    r"""Share of the score γ, gain η without it and κ along a mode of a live block.

    Parameters
    ----------
    amplitudes, response
        Positive amplitudes $a$ of a difference and $f(a)$ behind the block, odd by construction.
    projections
        Of the pairs' differences on the mode, in the same unit: they give m² and c.

    Notes
    -----
    Status is ``ok`` or ``abstained``; then ``because`` says what is missing, and what is known
    stays. Projections count as separated where the 95 % interval of $3E[p^2]^2 - E[p^4]$ over pairs
    is above 0 (`flowscope.replica.mixture_moments`). Intervals of m² and c are not carried over.

    Examples
    --------
    >>> import numpy as np
    >>> from flowscope.replica import mixture_step
    >>> p = np.tile([1.5, 0.5, -1.5, -0.5], 8)
    >>> found = mixture_moments(p)
    >>> a = found.c / found.m2**0.5 * np.linspace(0.05, 0.3, 8)
    >>> f = mixture_step(a, 0.4, m2=found.m2, c=found.c, eta=0.7)
    >>> told = speciation_of_mode(a, f, projections=p)
    >>> round(told["gamma"], 3), told["status"]
    (0.4, 'ok')
    """
    found: dict[str, Any] = dict.fromkeys(("eta", "m2", "c", "gamma", "kappa"), math.nan)
    found["status"] = "abstained"
    moments = mixture_moments(projections)
    found |= {"m2": moments.m2, "c": moments.c}
    missing = no_separation(moments)
    if missing is not None:
        return found | {"because": missing}
    both = np.concatenate([-amplitudes[::-1], amplitudes])
    gain = score_gain(np.concatenate([-response[::-1], response]), both, m2=moments.m2, c=moments.c)
    if gain.gamma is None or gain.eta is None:
        return found | {"because": gain.reason}
    found |= {"gamma": gain.gamma, "eta": gain.eta}
    try:
        kappa = speciation_parameter(gain.gamma, m2=moments.m2, c=moments.c, eta=gain.eta)
    except InvalidInputError as error:
        return found | {"because": str(error)}
    return found | {"kappa": kappa, "status": "ok", "because": ""}
