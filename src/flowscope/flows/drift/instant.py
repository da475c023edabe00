r"""From the mean velocity over a layer to the velocity at its start.

A difference over a whole layer is the mean of the velocity along it. A drift fitted to it and then
integrated exactly overshoots or falls short: for ẏ = Ay the fit returns (e^{AΔt} − I)/Δt, whose
flow is not that of A. With φ_b the flow of a drift b over one layer, what has to be added is known
as soon as a drift is,

.. math:: c_b(t, y) = b(t, y) - \frac{\varphi_b(t, y) - y}{\Delta t}, \qquad
          v \mapsto v + c_b(t, y),

and b can be fitted again. The fixed point is the drift whose *flow* over a layer has the right
mean: E[y⁺ − φ_b(y) | y] = 0. c_b is a function of the state, so no noise is added.
"""

from collections.abc import Callable
from dataclasses import replace

from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.flows.drift.baselines import Drift
from flowscope.flows.drift.ridge import ridge_drift
from flowscope.flows.drift.samples import DriftSample
from flowscope.flows.sampling import smooth_path

__all__ = ["instantaneous_sample"]

Fit = Callable[[DriftSample], Drift]
_MOST_STEPS = 30  # over one layer; a smooth drift takes about five


def instantaneous_sample(
    sample: DriftSample, step: float, *, fit: Fit = ridge_drift, rounds: int = 2
) -> DriftSample:
    r"""Pairs with the velocity at the start of a layer in place of its mean along the layer.

    .. math:: v^{(k+1)} = v + c_{b_k}(t, y), \qquad b_k = \mathrm{fit}(v^{(k)}), \quad v^{(0)} = v

    Parameters
    ----------
    sample : pairs (y, v), v a difference over a layer divided by its duration.
    step : Δt, that duration, the same for all pairs.
    fit : makes a drift of pairs; a smooth one, it is integrated.
    rounds : how often the drift is fitted again.

    Returns
    -------
    The same pairs with other velocities; the ones given where the flow of a fit cannot be followed
    over a layer (then no correction is better than a wrong one).

    Raises
    ------
    InvalidInputError
        If the step or the number of rounds is not positive.

    Notes
    -----
    A fit and an integration over one layer per round. The error shrinks by about ‖e^{∇bΔt} − I‖
    each round, an order of Δt, until the noise of the fit is reached.

    Examples
    --------
    >>> import torch
    >>> from flowscope.flows.drift import drift_sample, ridge_drift
    >>> start = torch.linspace(1, 2, 40).double()[:, None, None]
    >>> paths = torch.cat([start, start * torch.exp(torch.tensor(0.5).double())], 1)  # ẏ = y
    >>> sample = drift_sample(paths, torch.tensor([0.0, 0.5]), torch.arange(40))
    >>> fit = lambda pairs: ridge_drift(pairs, strengths=[1e-9])
    >>> better = instantaneous_sample(sample, 0.5, fit=fit, rounds=12)
    >>> [round(float(x.velocities[0] / x.states[0]), 2) for x in (sample, better)]
    [1.3, 1.0]
    """
    if not step > 0 or rounds < 1:
        raise InvalidInputError(
            f"step must be the positive duration of a layer and rounds at least 1; found {step} "
            f"and {rounds}."
        )
    found = sample
    for _ in range(rounds):
        shift = _correction(fit(found), sample, step)
        if shift is None:
            return sample
        found = replace(sample, velocities=sample.velocities + shift)
    return found


def _correction(drift: Drift, sample: DriftSample, step: float) -> Tensor | None:
    """c_b at every pair, each on a clock that starts with its layer."""
    times, context = sample.times, sample.context

    plain = getattr(drift, "unchecked", drift)

    def velocity(t: Tensor, y: Tensor) -> Tensor:
        found: Tensor = plain(times + t, y, context)
        return found

    path = smooth_path(
        velocity, sample.states, [0.0, step],
        rtol=1e-4, atol=1e-6, max_steps=_MOST_STEPS, recorded=True,
    )  # fmt: skip
    if path.status != "ok":
        return None
    mean = (path.states[-1] - sample.states) / step
    return drift(times, sample.states, context) - mean
