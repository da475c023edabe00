r"""Denoising score matching: the score of data blurred by σ, learned by guessing the noise.

.. math:: \min_s \; \sum_\sigma \sigma^2\,
          \mathbb E \bigl\| s(x + \sigma\varepsilon, \sigma, t) + \varepsilon/\sigma \bigr\|^2,
          \qquad \varepsilon \sim \mathcal N(0, I)

The minimiser is the score of the law of x + σε. Scales are multiples of the root mean square of
‖x‖/√d (source 000 eq 24 forgets √d: errata E41); the weight σ² makes every scale count alike (000's
σ²/(σ² + σ_min²) favours the smallest: E42). Noise comes in pairs ±ε: the part of the gradient that
carries 1/σ and no information cancels within a pair, and small scales can be learned at all.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.flows.score.network import ScoreNet, Standard
from flowscope.flows.score.samples import as_groups, as_points, check_moving, check_shape
from flowscope.flows.score.training import Cloud, ScoreTraining, Trained, trained
from flowscope.simplex.probability import ArrayLike, as_reals, refuse

__all__ = ["DenoisingScore", "fit_denoising_score"]

# Fewer points than this cannot be split, fitted and checked.
_FEWEST = 32


@dataclass(frozen=True, kw_only=True, eq=False)
class DenoisingScore:
    """A learned score s(x, σ, t), its held-out losses, and how it came about.

    ``sigmas`` are the noise scales in the units of the data, the largest first, and ``unit`` the
    root mean square of ‖x‖/√d they are multiples of. ``losses`` holds, for each of them, the
    held-out ‖σs + ε‖²/d: 1 for s = 0, less for a better score. ``validation_loss`` is their mean
    under the weight trained with, ``history`` that figure before training and after each epoch.
    ``abstained`` if a loss is not below 1 or training broke down; ``because`` then says which.
    """

    net: ScoreNet
    sigmas: tuple[float, ...]
    unit: float
    losses: tuple[float, ...]
    validation_loss: float
    history: tuple[float, ...]
    stopped_early: bool
    status: Literal["ok", "abstained"]
    because: str

    @property
    def epochs(self) -> int:
        """Passes over the training points."""
        return len(self.history) - 1

    def __call__(
        self,
        x: Float[Tensor, "n d"] | ArrayLike,
        sigma: Float[Tensor, " n"] | ArrayLike | float,
        t: Float[Tensor, " n"] | ArrayLike | float | None = None,
    ) -> Float[Tensor, "n d"]:
        """Score at x of the law blurred by σ (an absolute noise, not a multiple), at time t.

        Differentiable in x, σ and t. Raises InvalidInputError if the shapes do not match, σ ≤ 0,
        or t is missing for a law that has a time, or given to one that has none.
        """
        centre = self.net.centre
        points = as_reals(x, "x", centre.device).to(centre)
        check_shape(points, (*points.shape[:1], len(centre)), "x", "a set of points")
        noise = _per_point(sigma, "sigma", points)
        low = noise.detach()
        refuse(~(low > 0), low, "sigma must be > 0", "A score of unblurred points is not learned.")
        if (t is None) is not (self.net.standard.times is None):
            raise InvalidInputError(
                "t must be given exactly when the score was fitted with times; found "
                f"t {'missing' if t is None else 'given'}."
            )
        found: Tensor = self.net(points, noise, None if t is None else _per_point(t, "t", points))
        return found


def fit_denoising_score(
    points: Float[Tensor, "n d"] | ArrayLike,
    *,
    scales: Sequence[float] = (0.01, 0.02, 0.05, 0.1),
    times: Float[Tensor, " n"] | ArrayLike | None = None,
    groups: Int64[Tensor, " n"] | ArrayLike | None = None,
    training: ScoreTraining | None = None,
    generator: torch.Generator,
) -> DenoisingScore:
    r"""Learn the score of the law of some points, blurred at several scales.

    .. math:: s_\sigma = \nabla \log\, (p * \mathcal N(0, \sigma^2 I)), \qquad
              \sigma = c \cdot \bigl(\tfrac1{nd} \textstyle\sum_i \|x_i\|^2\bigr)^{1/2}

    Parameters
    ----------
    points : x, samples of the law.
    scales : c, multiples of the root mean square of a coordinate.
    times : t of each point (a depth, a diffusion time), if the law moves.
    groups : prompt or image of each point; whole groups are held out, for the points of one are
        not independent. Single points are held out when missing.
    training : settings, see :class:`ScoreTraining`.
    generator : decides the weights, the split, the batches and the noise; nothing else does.

    Returns
    -------
    DenoisingScore : call it as ``score(x, sigma, t)``.

    Raises
    ------
    InvalidInputError
        If there are fewer than 32 points or 2 groups, a point is not finite, a coordinate never
        varies, a scale is not positive, or the shapes do not match.

    Notes
    -----
    AdamW on a network around the Gaussian score (:class:`ScoreNet`), early stopping on held-out
    groups; 4,000 points in 8 dimensions take some ten seconds on one core. In the dtype of the
    points. Source 000 M.2, with √d in the scales, σ² as weight, noise in pairs and more epochs.
    Check the answer by :func:`flowscope.flows.score.noised_stein_identities`.

    Examples
    --------
    >>> generator = torch.Generator().manual_seed(0)
    >>> x = torch.randn(256, 2, generator=generator)
    >>> found = fit_denoising_score(
    ...     x, training=ScoreTraining(epochs=2, width=16), generator=generator)
    >>> found.status, found.epochs, bool((found(x, 0.1) + x / 1.01).abs().max() < 1)
    ('ok', 2, True)
    """
    training = training or ScoreTraining()
    x = as_points(points, "points", at_least=_FEWEST).detach()
    unit = float(x.double().square().mean().sqrt())
    check_moving(x, "points")
    sigmas = unit * _as_scales(scales).to(x)
    numbers = as_groups(groups, len(x), x.device, at_least=2)
    t = None if times is None else _per_point(times, "times", x).detach()
    held = _held_out_rows(numbers, len(x), training.held_out, generator).to(x.device)
    cloud = Cloud(x, t)
    seen = cloud.at(~held)
    standard = Standard.fit(seen.points, sigmas, seen.times)
    net = ScoreNet(standard, width=training.width, blocks=training.blocks, generator=generator)
    outcome = trained(net, (seen, cloud.at(held)), sigmas, training, generator)
    return _reported(outcome, sigmas.sort(descending=True).values, unit)


def _as_scales(scales: Sequence[float]) -> Tensor:
    found = torch.tensor(list(scales), dtype=torch.float64)
    if not len(found) or not bool(((found > 0) & found.isfinite()).all()):
        raise InvalidInputError(
            f"scales must be positive and finite, at least one; found {list(scales)}. They are "
            "multiples of the root mean square of a coordinate, usually .01 to .1."
        )
    return found


def _per_point(value: Tensor | ArrayLike | float, name: str, x: Tensor) -> Float[Tensor, " n"]:
    found = as_reals(value, name, x.device).to(x)
    found = found.expand(len(x)) if found.ndim == 0 else found
    check_shape(found, (len(x),), name, "the points")
    low = found.detach()
    refuse(~low.isfinite(), low, f"{name} must be finite", "Remove such points first.")
    return found


def _held_out_rows(
    groups: Int64[Tensor, " n"] | None, n: int, share: float, generator: torch.Generator
) -> Tensor:
    """Which points are held out: a share of them, or all points of a share of the groups."""
    units = n if groups is None else int(groups.max()) + 1
    count = min(max(1, round(share * units)), units - 1)
    chosen = torch.zeros(units, dtype=torch.bool)
    chosen[torch.randperm(units, generator=generator, device=generator.device)[:count].cpu()] = True
    return chosen if groups is None else chosen[groups.cpu()]


def _reported(outcome: Trained, sigmas: Float[Tensor, " k"], unit: float) -> DenoisingScore:
    losses = tuple(outcome.losses.tolist())
    because = ""
    if not math.isfinite(outcome.history[-1]):
        because = "training diverged: the held-out loss is no longer finite. Lower learning_rate."
    elif max(losses) >= 1:
        worst = losses.index(max(losses))
        because = (
            f"at σ = {sigmas[worst]:.4g} the held-out loss is {losses[worst]:.6g}, no better than "
            "the 1 of a score that is zero. More points or larger scales are needed."
        )
    return DenoisingScore(
        net=outcome.net,
        sigmas=tuple(sigmas.tolist()),
        unit=unit,
        losses=losses,
        validation_loss=outcome.loss,
        history=outcome.history,
        stopped_early=outcome.stopped_early,
        status="abstained" if because else "ok",
        because=because,
    )
