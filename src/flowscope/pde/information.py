r"""What a probe can read from states about labels it has not seen, in nats.

$$
I(X;Y) \ge \mathbb E\bigl[\log q(y\mid x) - \log \hat p(y)\bigr]
$$

for any probe $q$ (Barber and Agakov) whose baseline $\hat p$ is the class frequencies. Probe and
frequencies are fitted on other prompts than those they are tested on. It is what *this* probe can
read, a lower bound; the information of a deterministic map itself is set by a binning (E67).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import log_softmax
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.flows.drift.folds import group_folds
from flowscope.pde.states import as_states
from flowscope.simplex.probability import ArrayLike

__all__ = ["DecodableInformation", "decodable_information"]

Array = NDArray[np.float64]
Labels = NDArray[np.int64]
Fitted = Callable[[Array], Array]

_PRIOR = 0.5  # added to the count of every class
_LARGEST = 1e75
_RIDGE = 1e-3  # penalty of the softmax probe, and share of the mean variance added to a covariance


@dataclass(frozen=True, kw_only=True, eq=False)
class DecodableInformation:
    """Gain of a probe's held-out log-loss over that of the class frequencies, nats per token.

    Attributes
    ----------
    gain
        Mean over all tokens; not above the information in expectation, and may be negative.
    shuffled
        The same with labels permuted over all tokens: what fitting alone gives, about 0.
    groups, group_gains, group_sizes
        Prompts, the mean gain over the tokens of each, and their number, for intervals.
    """

    gain: float
    shuffled: float
    groups: Int[NDArray[np.int64], "G"]
    group_gains: Float[NDArray[np.float64], "G"]
    group_sizes: Int[NDArray[np.int64], "G"]


def decodable_information(
    states: Float[Tensor, "N d"] | ArrayLike,
    labels: Int[Tensor, "N"],
    groups: Int[Tensor, "N"],
    *,
    kind: Literal["gaussian", "softmax"] = "gaussian",
    components: int = 32,
    folds: int = 5,
    seed: int = 0,
) -> DecodableInformation:
    """Information about labels that a probe reads from states of prompts it was not fitted on.

    Parameters
    ----------
    states
        One row a token.
    labels
        Class of each token, any whole numbers.
    groups
        Prompt of each token; a prompt is fitted on or tested on, never both.
    kind
        ``"gaussian"``: classes with their own means and one covariance; ``"softmax"``: logistic
        regression with a small penalty.
    components
        Most principal coordinates of the states that the probe sees.
    folds
        Parts of the prompts, at most their number.
    seed
        Of the folds and of the permuted labels.

    Raises
    ------
    InvalidInputError
        For fewer than two classes, fewer than two prompts, shapes that differ, an unknown kind, or
        states that are not finite or beyond 1e75.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 2, 1000)
    >>> x = rng.standard_normal((1000, 1)) + 2 * (2 * y[:, None] - 1)
    >>> found = decodable_information(x, torch.from_numpy(y), torch.arange(1000) // 20)
    >>> 0.55 < found.gain < 0.69, abs(found.shuffled) < 0.02
    (True, True)
    """
    x, classes, prompts = _checked(states, labels, groups, kind, components, folds)
    names, place = np.unique(prompts, return_inverse=True)
    generator = torch.Generator().manual_seed(seed)
    parts = group_folds(
        torch.from_numpy(place.astype(np.int64)), min(folds, len(names)), generator
    ).numpy()
    mixed = classes[np.random.default_rng(seed).permutation(len(classes))]
    real, shuffled = (_gains(x, y, parts, kind, components) for y in (classes, mixed))
    sizes = np.bincount(place)
    return DecodableInformation(
        gain=float(real.mean()),
        shuffled=float(shuffled.mean()),
        groups=names,
        group_gains=np.bincount(place, real) / sizes,
        group_sizes=sizes,
    )


def _gains(x: Array, y: Labels, parts: Labels, kind: str, components: int) -> Array:
    """Gain of every token, read by the probe that has not seen its prompt."""
    gains = np.empty(len(y))
    count = int(y.max()) + 1
    fit = _gaussian_probe if kind == "gaussian" else _softmax_probe
    for part in np.unique(parts):
        test, train = parts == part, parts != part
        reduced = _principal_coordinates(x[train], components)
        log_frequencies = np.log(_frequencies(y[train], count))
        probe = fit(reduced(x[train]), y[train], count)
        read = probe(reduced(x[test]))[np.arange(int(test.sum())), y[test]]
        gains[test] = read - log_frequencies[y[test]]
    return gains


def _principal_coordinates(x: Array, components: int) -> Fitted:
    mean = x.mean(0)
    _, sizes, axes = np.linalg.svd(x - mean, full_matrices=False)
    used = axes[: min(components, int((sizes > 1e-9 * max(sizes[0], 1e-300)).sum()) or 1)]
    return lambda points: (points - mean) @ used.T


def _frequencies(y: Labels, count: int) -> Array:
    weights = np.bincount(y, minlength=count) + _PRIOR
    return np.asarray(weights / weights.sum())


def _gaussian_probe(x: Array, y: Labels, count: int) -> Fitted:
    """Log-probabilities of classes with their own means, shrunk, and one covariance."""
    sizes = np.bincount(y, minlength=count)
    sums = np.stack([np.bincount(y, column, minlength=count) for column in x.T], 1)
    means = (sums + x.mean(0)) / (sizes + 1)[:, None]
    within = x - means[y]
    covariance = within.T @ within / len(x)
    covariance += _RIDGE * np.trace(covariance) / len(covariance) * np.eye(len(covariance))
    slopes = np.linalg.solve(covariance + np.finfo(float).tiny * np.eye(len(covariance)), means.T).T
    offsets = np.log(_frequencies(y, count)) - 0.5 * (slopes * means).sum(1)
    return lambda points: np.asarray(log_softmax(points @ slopes.T + offsets, axis=1))


def _softmax_probe(x: Array, y: Labels, count: int) -> Fitted:
    """Log-probabilities of penalised logistic regression on standardised coordinates."""
    scale = np.maximum(x.std(0), 1e-300)
    features = np.column_stack([x / scale, np.ones(len(x))])
    goal = np.eye(count)[y]

    def loss(flat: Array) -> tuple[float, Array]:
        weights = flat.reshape(count, -1)
        logs = log_softmax(features @ weights.T, axis=1)
        slope = (np.exp(logs) - goal).T @ features / len(y) + _RIDGE * weights
        value = -logs[np.arange(len(y)), y].mean() + 0.5 * _RIDGE * (weights**2).sum()
        return float(value), slope.ravel()

    start = np.zeros((count, features.shape[1]))
    start[:, -1] = np.log(_frequencies(y, count))
    weights = minimize(loss, start.ravel(), jac=True, method="L-BFGS-B").x.reshape(count, -1)
    return lambda points: np.asarray(
        log_softmax(np.column_stack([points / scale, np.ones(len(points))]) @ weights.T, axis=1)
    )


def _checked(
    states: Tensor | ArrayLike,
    labels: Tensor,
    groups: Tensor,
    kind: str,
    components: int,
    folds: int,
) -> tuple[Array, Labels, Labels]:
    x = as_states(states, "states").double().cpu().numpy()
    names, prompts = (np.asarray(torch.as_tensor(y).cpu()) for y in (labels, groups))
    if x.ndim != 2 or names.shape != (len(x),) or prompts.shape != (len(x),):
        raise InvalidInputError(
            "labels and groups must have one entry a row of states; found shapes "
            f"{names.shape} and {prompts.shape} for {x.shape}."
        )
    if float(np.abs(x).max(initial=0.0)) > _LARGEST:
        raise InvalidInputError(
            f"states must be below {_LARGEST:g}, so that their variances are numbers; found "
            f"{np.abs(x).max():.3g}. Divide them by a constant."
        )
    if kind not in ("gaussian", "softmax"):
        raise InvalidInputError(f"kind must be 'gaussian' or 'softmax'; got {kind!r}.")
    if components < 1 or folds < 2:
        raise InvalidInputError(
            f"components must be at least 1 and folds at least 2; got {components} and {folds}."
        )
    kinds, classes = np.unique(names, return_inverse=True)
    if len(kinds) < 2:
        raise InvalidInputError("information needs at least two classes; found one label.")
    if len(np.unique(prompts)) < 2:
        raise InvalidInputError("a held-out gain needs at least two prompts; found one.")
    return x, classes.astype(np.int64), prompts.astype(np.int64)
