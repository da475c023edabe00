r"""What a drift owes to the order of the layers and to the amount of data.

The mean drift of :func:`flowscope.flows.drift.mean_drift` moves every token alike, so its forecast
needs no integrator: with m_ℓ the mean velocity of layer ℓ,

.. math:: \hat y^{\ell+1} = y^\ell + m_\ell\,\Delta t_\ell \quad\text{(one layer)}, \qquad
          \hat y^{k} = y^{0} + \sum_{\ell < k} m_\ell\,\Delta t_\ell \quad\text{(onward)} .

Two further samples say what a fitted drift rests on. One has the times of its layers permuted: a
drift that forecasts as well from it does not use depth. One has half of the prompts: a drift that
forecasts as well from it would gain little from more data.
"""

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.flows.drift.baselines import MeanDrift
from flowscope.flows.drift.samples import DriftSample

__all__ = ["half_of_prompts", "mean_paths", "shuffled_layers"]


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
    >>> half_of_prompts(torch.tensor([3, 3, 5, 5]), torch.Generator().manual_seed(0))
    tensor([False, False,  True,  True])
    """
    names, place = torch.unique(groups, return_inverse=True)
    if len(names) < 2:
        raise InvalidInputError(
            f"Half of the prompts needs at least 2 of them; found {len(names)}. Give more prompts."
        )
    chosen = torch.zeros(len(names), dtype=torch.bool)
    chosen[torch.randperm(len(names), generator=generator)[: len(names) // 2]] = True
    return chosen.to(groups.device)[place]
