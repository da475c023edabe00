"""The Gaussian control: the protocol of the pairs with the score of a Gaussian.

Its samples, in as many steps as the model's, have the covariance of the model's images.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing

import numpy as np
import torch
from numpy.typing import NDArray

from flowscope.errors import InvalidInputError
from flowscope.instruments.sync.commitment.gaussian import (
    ExactDenoiser,
    GaussianDenoiser,
    gaussian_images,
)
from flowscope.instruments.sync.commitment.outcomes import (
    Curve,
    Outcomes,
    coarse_side,
    intervention_steps,
)
from flowscope.instruments.sync.commitment.step_errors import law_of_samples
from flowscope.instruments.sync.config import SyncConfig
from flowscope.instruments.sync.pair_sampling import pair_sampler
from flowscope.models.diffusion.denoiser import Denoiser
from flowscope.probes import Arrays
from flowscope.replica import coarse_fine

__all__ = [
    "FEWEST_FINALS",
    "GROUPS",
    "RANKS",
    "best_rank",
    "control_arrays",
    "curve_arrays",
    "order_arrays",
    "released_distances",
]

RANKS = (0, 2, 4, 8, 16, 32)
"""Numbers of leading directions of the covariance that the control is chosen from."""

GROUPS = 8
"""Groups of images that are left out in turn, for the error of the covariance."""

FEWEST_FINALS = 16
"""Images of a class that a control needs."""

_FOLDS, _LEVELS = 4, 16  # of the choice of the rank: parts left out, and noise levels

Key = tuple[float, bool]
Distances = dict[Key, NDArray[np.float64]]


def order_arrays(
    outcomes: Outcomes,
    denoiser: Denoiser | ExactDenoiser,
    curves: Sequence[Curve],
    config: SyncConfig,
) -> tuple[Arrays, str]:
    """Distances of the model's pairs and of the control's, or why there is no control."""
    arrays = curve_arrays(curves)
    try:
        finals = {label: outcomes.finals(label) for label in config.labels}
        return arrays | control_arrays(denoiser, finals, curves, config), ""
    except InvalidInputError as error:
        return arrays, str(error).rstrip(".")


def curve_arrays(curves: Sequence[Curve]) -> Arrays:
    """Distances of every pair by curve, ``[curves, pairs, interventions]``, and which curve."""
    return {
        "steps": curves[0].steps.astype(np.float64),
        "label": np.asarray([curve.label for curve in curves]),
        "g": np.asarray([curve.g for curve in curves]),
        "control": np.asarray([curve.control for curve in curves]),
        "coarse": np.stack([curve.distances["coarse"] for curve in curves]),
        "fine": np.stack([curve.distances["fine"] for curve in curves]),
    }


def control_arrays(
    denoiser: Denoiser | ExactDenoiser,
    finals: Mapping[int, NDArray[np.float32]],
    curves: Sequence[Curve],
    config: SyncConfig,
) -> Arrays:
    """Distances of the pairs of the control, with the noise of the model's own pairs.

    Parameters
    ----------
    denoiser
        The model it stands in for.
    finals
        Finished latents of untied replicas by class.
    curves
        Those of the model; the control has the same ones, in their order.
    config
        Settings of the run.

    Returns
    -------
    ``gaussian_coarse`` and ``gaussian_fine``, ``[ranks, curves, pairs, interventions]``, the rank
    of the control first, then its neighbours among `RANKS`; ``without_coarse`` and
    ``without_fine``, means over pairs with one group of images left out of the covariance,
    ``[groups, curves, interventions]``.

    Raises
    ------
    InvalidInputError
        When there are too few images for a covariance, or they do not differ.
    """
    fewest = min(len(images) for images in finals.values())
    if fewest < FEWEST_FINALS:
        raise InvalidInputError(
            f"it needs {FEWEST_FINALS} images of each class or more; this run has {fewest}. Set "
            f"finals to {FEWEST_FINALS} or more, better to 64"
        )
    laws = {label: torch.from_numpy(images.copy()) for label, images in finals.items()}
    place = RANKS.index(best_rank(denoiser, laws, config))
    ranks = [RANKS[place], *RANKS[max(place - 1, 0) : place], *RANKS[place + 1 : place + 2]]
    by_rank = [_every(denoiser, laws, curves, config, rank) for rank in ranks]
    without = []
    for group in range(GROUPS):
        kept = {
            label: images[torch.arange(len(images)) % GROUPS != group]
            for label, images in laws.items()
        }
        without.append(_every(denoiser, kept, curves, config, ranks[0]).mean(2))
    whole, left_out = np.stack(by_rank), np.stack(without)
    return {
        "gaussian_coarse": whole[:, 0],
        "gaussian_fine": whole[:, 1],
        "without_coarse": left_out[:, 0],
        "without_fine": left_out[:, 1],
        "finals": np.asarray([len(images) for images in laws.values()]),
        "ranks": np.asarray(ranks),
    }


def best_rank(
    denoiser: Denoiser | ExactDenoiser, images: Mapping[int, torch.Tensor], config: SyncConfig
) -> int:
    """Rank of the covariance whose Gaussian predicts the noise in left-out images best."""
    generator = torch.Generator().manual_seed(config.seed)
    errors = np.zeros(len(RANKS))
    for rows in images.values():
        drawn = torch.randn(rows.shape, generator=generator)
        fold = torch.arange(len(rows)) % _FOLDS
        for place, rank in enumerate(RANKS):
            if rank > len(rows) // 8:
                errors[place] = np.inf
                continue
            for number in range(_FOLDS):
                law = gaussian_images(rows[fold != number], rank)
                exact = GaussianDenoiser(law, denoiser)
                away = fold == number
                errors[place] += _noise_error(exact, rows[away], drawn[away], config)
    return RANKS[int(errors.argmin())]


def _noise_error(
    exact: GaussianDenoiser, images: torch.Tensor, drawn: torch.Tensor, config: SyncConfig
) -> float:
    """Squared error of the predicted noise over the noise levels of the run."""
    levels, total = exact.clock(config.steps).levels, 0.0
    for step in np.unique(np.linspace(0, config.steps - 1, _LEVELS).round().astype(int)):
        level = levels[step]
        noisy = level**0.5 * images + (1 - level) ** 0.5 * drawn
        missed = level * (exact.denoised(noisy, level) - images).square().sum() / (1 - level)
        total += float(missed)
    return total


def _every(
    denoiser: Denoiser | ExactDenoiser,
    images: Mapping[int, torch.Tensor],
    curves: Sequence[Curve],
    config: SyncConfig,
    rank: int,
) -> NDArray[np.float64]:
    """Distances of every curve, ``[2, curves, pairs, interventions]``: coarse, fine."""
    keys = {(curve.g, curve.control): None for curve in curves}
    found = {}
    for label, rows in images.items():
        law = gaussian_images(rows, rank)
        clock = GaussianDenoiser(law, denoiser).clock(config.steps)
        exact = GaussianDenoiser(law_of_samples(law, clock, eta=config.eta), denoiser)
        found[label] = released_distances(exact, config, label, list(keys))
    return np.stack([found[curve.label][curve.g, curve.control] for curve in curves], 1)


@torch.no_grad()
def released_distances(
    denoiser: ExactDenoiser, config: SyncConfig, label: int, keys: Sequence[Key]
) -> Distances:
    """Distances of pairs that are tied up to a step and let go, ``[2, pairs, interventions]``.

    Parameters
    ----------
    denoiser
        What denoises.
    config, label
        Settings of the protocol and the class whose noise is taken.
    keys
        Coupling of each curve, and whether its replicas share their noise instead.
    """
    parts: dict[Key, list[NDArray[np.float64]]] = {key: [] for key in keys}
    size = max(2, config.batch)
    for start in range(0, config.pairs, size):
        rows = slice(start, min(start + size, config.pairs))
        for key, distances in _chunk(denoiser, config, label, rows, keys).items():
            parts[key].append(distances)
    return {key: np.concatenate(found, 1) for key, found in parts.items()}


def _chunk(
    denoiser: ExactDenoiser, config: SyncConfig, label: int, rows: slice, keys: Sequence[Key]
) -> Distances:
    sampler, noise = pair_sampler(denoiser, config, label, eta=config.eta, rows=rows)
    asked, first = intervention_steps(config), noise.initial(config.sigma)
    free = sampler.finished({0: first}, noise)[0]
    found = {}
    for g, shared in keys:
        with closing(sampler.walk(first, noise, g=g, shared=shared)) as walk:
            states = {done: x for done, x in walk if done in asked}
        ended = {0: free} | sampler.finished(states, noise)
        columns = [_distances(denoiser, ended[step], config) for step in asked]
        found[g, shared] = np.stack(columns, 2)
    return found


def _distances(denoiser: ExactDenoiser, x: torch.Tensor, config: SyncConfig) -> NDArray[np.float64]:
    images = denoiser.decoded(x).float()
    first, second = images.chunk(2)
    scales = coarse_fine(first, second, coarse_side(config, images.shape[-1]))
    return torch.stack([scales.low, scales.high]).double().cpu().numpy()
