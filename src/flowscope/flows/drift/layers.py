r"""What a drift owes to the order of the layers and to the amount of data.

The mean drift of :func:`flowscope.flows.drift.mean_drift` moves every token alike, so its forecast
needs no integrator: with m_ℓ the mean velocity of layer ℓ,

.. math:: \hat y^{\ell+1} = y^\ell + m_\ell\,\Delta t_\ell \quad\text{(one layer)}, \qquad
          \hat y^{k} = y^{0} + \sum_{\ell < k} m_\ell\,\Delta t_\ell \quad\text{(onward)} .

A network that only fades (each layer adds something unrelated, and a norm shrinks what was there)
also moves states toward their mean. One rate per layer beside the mean step covers that,

.. math:: v = m_\ell + a_\ell\,(y - \bar y_\ell) ,

again without an integrator: the layers are a recursion.

Two further samples say what a fitted drift rests on. One has the times of its layers permuted: a
drift that forecasts as well from it does not use depth. One has half of the prompts: a drift that
forecasts as well from it would gain little from more data.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.flows.drift.baselines import MeanDrift, mean_drift
from flowscope.flows.drift.samples import DriftSample

__all__ = [
    "ScaledMean",
    "half_of_prompts",
    "mean_paths",
    "scaled_mean",
    "scaled_paths",
    "shuffled_layers",
]


def mean_paths(
    drift: MeanDrift, y: Float[Tensor, "n states r"], times: Float[Tensor, "states"]
) -> tuple[Float[Tensor, "n steps r"], Float[Tensor, "n steps r"]]:
    r"""Forecasts of the mean drift, one layer ahead and from the first state onward.

    .. math:: y^\ell + m_\ell \Delta t_\ell, \qquad y^0 + \sum_{j \le \ell} m_j \Delta t_j

    Parameters
    ----------
    drift : m, fitted on other prompts.
    y : true coordinates; onward only the first state of each path is used.
    times : t of each state, those of the fit.

    Raises
    ------
    InvalidInputError
        If there is not one time per state.

    Notes
    -----
    Exact, because the drift is constant on each layer. O(n·states·r).

    Examples
    --------
    >>> m = MeanDrift(times=torch.tensor([0.0, 0.5]), velocities=torch.tensor([[2.0], [4.0]]))
    >>> near, far = mean_paths(m, torch.zeros(1, 3, 1), torch.tensor([0.0, 0.5, 1.0]))
    >>> near.flatten(), far.flatten()
    (tensor([1., 2.]), tensor([1., 3.]))
    """
    if y.ndim != 3 or tuple(times.shape) != (y.shape[1],):
        raise InvalidInputError(
            f"times must have one entry per state of y, shape [n, states, r]; found "
            f"{tuple(times.shape)} beside {tuple(y.shape)}."
        )
    steps = drift(times[:-1], y[0, :-1]) * times.diff().to(y)[:, None]
    return y[:, :-1] + steps, y[:, :1] + steps.cumsum(0)


@dataclass(frozen=True, eq=False, kw_only=True)
class ScaledMean:
    """A mean velocity, a mean state and a rate per layer; see :func:`scaled_mean`."""

    mean: MeanDrift
    centres: Float[Tensor, "steps r"]
    rates: Float[Tensor, "steps"]


def scaled_mean(sample: DriftSample, spare: Bool[Tensor, "N"] | None = None) -> ScaledMean:
    r"""Mean velocity of each layer and one rate at which its states leave their mean.

    .. math:: a_\ell = \frac{\sum_i (v_i - m_\ell)\cdot(y_i - \bar y_\ell)}
                           {\sum_i |y_i - \bar y_\ell|^2} \quad (t_i = t_\ell)

    Parameters
    ----------
    sample : pairs (y, v) with times t.
    spare : pairs to try the rates on. A rate that is fitted on the other pairs and does not lower
        the squared error on these is set to 0; the rest are fitted on all pairs.

    Notes
    -----
    One number per layer from all tokens and coordinates: O(N·r).

    Examples
    --------
    >>> from flowscope.flows.drift import drift_sample
    >>> paths = torch.tensor([[[1.0], [1.5]], [[3.0], [2.5]]])
    >>> sample = drift_sample(paths, torch.tensor([0.0, 1.0]), torch.tensor([0, 1]))
    >>> scaled_mean(sample).rates
    tensor([-0.5000], dtype=torch.float64)
    """
    times, place = torch.unique(sample.times, return_inverse=True)
    mean = mean_drift(sample)
    centres = torch.zeros(len(times), sample.width, dtype=torch.float64, device=place.device)
    centres.index_add_(0, place, sample.states.double())
    centres /= place.bincount()[:, None]
    along, size = _products(sample, place, mean.velocities, centres)
    rates = torch.where(size > 0, along / size, 0.0)
    if spare is not None:
        tried = scaled_mean(sample.at(~spare))
        away = _products(sample.at(spare), place[spare], tried.mean.velocities, tried.centres)
        # the squared error falls by a (2 along − a size)
        helpful = tried.rates * (2 * away[0] - tried.rates * away[1]) > 0
        rates = torch.where(helpful, rates, 0.0)
    return ScaledMean(mean=mean, centres=centres, rates=rates)


def _products(
    sample: DriftSample, place: Tensor, velocities: Tensor, centres: Tensor
) -> tuple[Tensor, Tensor]:
    """Σ (v − m)·(y − ȳ) and Σ |y − ȳ|² of each layer."""
    off = sample.states.double() - centres[place]
    rest = sample.velocities.double() - velocities[place]
    zero = torch.zeros(len(centres), dtype=torch.float64, device=off.device)
    along = zero.index_add(0, place, (rest * off).sum(-1))
    return along, zero.index_add(0, place, off.square().sum(-1))


def scaled_paths(
    drift: ScaledMean, y: Float[Tensor, "n states r"], times: Float[Tensor, "states"]
) -> tuple[Float[Tensor, "n steps r"], Float[Tensor, "n steps r"]]:
    r"""Forecasts of a mean step with a rate, one layer ahead and from the first state onward.

    .. math:: \hat y^{\ell+1} = \hat y^\ell + \Delta t_\ell\,
              \bigl(m_\ell + a_\ell (\hat y^\ell - \bar y_\ell)\bigr)

    Parameters
    ----------
    drift : m, ȳ and a, fitted on other prompts.
    y : true coordinates; onward only the first state of each path is used.
    times : t of each state, those of the fit.

    Raises
    ------
    InvalidInputError
        If there is not one time per state, or not one layer of the fit per step.

    Examples
    --------
    >>> from flowscope.flows.drift import drift_sample
    >>> paths = torch.tensor([[[1.0], [1.5]], [[3.0], [2.5]]])
    >>> sample = drift_sample(paths, torch.tensor([0.0, 1.0]), torch.tensor([0, 1]))
    >>> scaled_paths(scaled_mean(sample), torch.zeros(1, 2, 1), torch.tensor([0.0, 1.0]))[1]
    tensor([[[1.]]], dtype=torch.float64)
    """
    if y.ndim != 3 or tuple(times.shape) != (y.shape[1],) or len(drift.rates) != y.shape[1] - 1:
        raise InvalidInputError(
            f"times must have one entry per state of y, shape [n, states, r], and the drift one "
            f"layer per step; found {tuple(times.shape)} beside {tuple(y.shape)}, and "
            f"{len(drift.rates)} layers."
        )
    steps = times.diff().double()
    velocity = drift.mean.velocities
    states, onward = y.double(), []
    rates = drift.rates[:, None]
    near = states[:, :-1] + steps[:, None] * (velocity + rates * (states[:, :-1] - drift.centres))
    here = states[:, 0]
    for k in range(len(steps)):
        here = here + steps[k] * (velocity[k] + drift.rates[k] * (here - drift.centres[k]))
        onward.append(here)
    return near, torch.stack(onward, 1)


def shuffled_layers(sample: DriftSample, generator: torch.Generator) -> DriftSample:
    r"""The same pairs with the times of the layers permuted: depth in a random order.

    .. math:: (t_\ell, y, v) \mapsto (t_{\pi(\ell)}, y, v)

    Parameters
    ----------
    sample : pairs (y, v) with times t.
    generator : draws π, which moves at least one layer where there are two.

    Notes
    -----
    One permutation for all tokens, so a layer stays together. A drift that does not depend on t is
    fitted just as well: equal skills mean an autonomous flow and no fault.

    Examples
    --------
    >>> from flowscope.flows.drift import drift_sample
    >>> paths = torch.tensor([[[0.0], [1.0], [3.0]]])
    >>> sample = drift_sample(paths, torch.tensor([0.0, 0.5, 1.0]), torch.tensor([7]))
    >>> shuffled_layers(sample, torch.Generator().manual_seed(0)).times
    tensor([0.5000, 0.0000])
    """
    times, place = torch.unique(sample.times, return_inverse=True)
    order = torch.arange(len(times))
    while len(times) > 1 and bool((order == torch.arange(len(times))).all()):
        order = torch.randperm(len(times), generator=generator)
    return DriftSample(
        states=sample.states,
        times=times[order.to(place.device)[place]],
        velocities=sample.velocities,
        groups=sample.groups,
        context=sample.context,
        context_names=sample.context_names,
    )


def half_of_prompts(groups: Int64[Tensor, "N"], generator: torch.Generator) -> Tensor:
    r"""Which rows belong to a random half of the prompts, rounded down.

    .. math:: |\{g\}| = \lfloor G / 2 \rfloor

    Parameters
    ----------
    groups : prompt g of each row.
    generator : draws the half.

    Raises
    ------
    InvalidInputError
        If there is only one prompt.

    Examples
    --------
    >>> half_of_prompts(torch.tensor([3, 3, 5, 5]), torch.Generator().manual_seed(0)).sum()
    tensor(2)
    """
    names, place = torch.unique(groups, return_inverse=True)
    if len(names) < 2:
        raise InvalidInputError(
            f"Half of the prompts needs at least 2 of them; found {len(names)}. Give more prompts."
        )
    chosen = torch.zeros(len(names), dtype=torch.bool)
    chosen[torch.randperm(len(names), generator=generator)[: len(names) // 2]] = True
    return chosen.to(groups.device)[place]
