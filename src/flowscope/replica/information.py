r"""What a noised state says about its class, from a class-conditional denoiser.

With $X_t = \alpha X_0 + \sigma\varepsilon$ and $\mathrm{snr} = \alpha^2/\sigma^2$, the derivative
of mutual information is half a mean square error (Guo, Shamai, Verdú 2005). Taken once with and
once without the class $Y$, the two errors differ by the distance of the two predictions:

$$
\frac{d\,I(Y; X_t)}{d\log\mathrm{snr}}
  = \tfrac12\,\mathbb E\,\Vert\hat\varepsilon(X_t, t, Y) - \hat\varepsilon(X_t, t)\Vert^2,
\qquad
H(Y\mid X_t) = H(Y) - \tfrac12\int_{-\infty}^{\log\mathrm{snr}}
  \mathbb E\,\Vert\Delta\hat\varepsilon\Vert^2\,d\log\mathrm{snr} .
$$

This is exact for exact denoisers. A learned pair has errors $\delta_Y$ and $\delta$, and the
distance of its predictions counts $\Vert\delta_Y - \delta\Vert^2$ too. Where the noise is known,
the difference of the two squared errors has the same mean and counts
$\Vert\delta\Vert^2 - \Vert\delta_Y\Vert^2$ only, which is zero for errors of one size:

$$
\mathbb E\,\Vert\Delta\hat\varepsilon\Vert^2 = \mathbb E\bigl[
  \Vert\varepsilon - \hat\varepsilon(X_t, t)\Vert^2
  - \Vert\varepsilon - \hat\varepsilon(X_t, t, Y)\Vert^2\bigr] .
$$

What either gains in all may still end above $\log(\text{classes})$; ``excess`` says by how much.

For the mixture $\tfrac12N(\mu, s^2) + \tfrac12N(-\mu, s^2)$ on the unit clock, $\alpha = e^{-t}$,
$v = \alpha^2s^2 + 1 - \alpha^2$, everything depends on $r = \alpha\mu/\sqrt v$; with
$u = \alpha\mu x/v = r^2 + rz$, $z \sim N(0, 1)$,

$$
H(Y\mid x_t) = \mathbb E\log(1 + e^{-2u}), \qquad
\varphi(t) = \tfrac12(1 + \mathbb E\tanh^2u), \qquad
\mathbb E\,\Vert\Delta\hat\varepsilon\Vert^2
  = (1 - \alpha^2)\Bigl(\frac{\alpha\mu}v\Bigr)^2\,\mathbb E[1 - \tanh^2u] .
$$
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.flows.sampling.resamples import resampled_means
from flowscope.simplex.probability import ArrayLike, as_reals, refuse

__all__ = [
    "ClassInformation",
    "class_information",
    "mixture_entropy",
    "mixture_gap",
    "mixture_u_turn",
]

_FEWEST_IMAGES = 8
_FEWEST_DRAWS = 20


@dataclass(frozen=True, kw_only=True, eq=False)
class ClassInformation:
    """Entropy of the class given the state along log snr, and the rate at which it falls.

    Attributes
    ----------
    log_snr
        Times, noise first.
    rate, rate_low, rate_high
        Nats gained per unit of log snr, ½E|Δε̂|².
    entropy, low, high
        H(Y|x_t) in nats; below zero where the denoisers claim more than there is to know.
    tail
        Nats gained before the first time, taken as the first rate.
    total, total_low, total_high
        Nats gained at the last time.
    excess
        ``total`` less log(classes): above zero no exact pair of denoisers can be.
    classes, images, draws, level
        What the numbers rest on.
    """

    log_snr: Float64[Tensor, "K"]
    rate: Float64[Tensor, "K"]
    rate_low: Float64[Tensor, "K"]
    rate_high: Float64[Tensor, "K"]
    entropy: Float64[Tensor, "K"]
    low: Float64[Tensor, "K"]
    high: Float64[Tensor, "K"]
    tail: float
    total: float
    total_low: float
    total_high: float
    excess: float
    classes: int
    images: int
    draws: int
    level: float


def class_information(
    log_snr: Float[Tensor, " K"] | ArrayLike,
    gaps: Float[Tensor, "n K"] | ArrayLike,
    classes: int,
    *,
    draws: int,
    generator: torch.Generator,
    level: float = 0.95,
) -> ClassInformation:
    r"""Entropy of the class given the state, by integrating the gap of two denoisers.

    $$
    H_k = \log(\text{classes}) - \tfrac12\bar g_0
      - \tfrac12\sum_{j<k}\tfrac12(\bar g_j + \bar g_{j+1})\,(\ell_{j+1} - \ell_j)
    $$

    Parameters
    ----------
    log_snr
        $\ell$, increasing: from noise to image.
    gaps
        $g = \Vert\Delta\hat\varepsilon\Vert^2$, or the difference of the squared errors, summed
        over pixels; one row an image of a class drawn evenly, noised to each time.
    classes
        How many; $H(Y) = \log(\text{classes})$, so they must be equally frequent.
    draws
        Resamples of images, at least 20.
    generator
        Source of the resamples.
    level
        Of the bands, each time for itself.

    Raises
    ------
    InvalidInputError
        If times do not increase, shapes disagree, a gap is not finite, there are fewer
        than 8 images or two classes.

    Notes
    -----
    Trapezoidal rule. What lies before the first time is not measured; for snr → 0 the rate is
    proportional to snr, and such a tail integrates to the first rate, which is added. The curve is
    linear in the gaps, so that resampling images gives percentile bands of a mean. O(draws·n·K).
    The bands know sampling noise only: neither the rule's error nor that of the denoisers. Where
    one image in many makes the rate (clean states, nearly all decided) its band is too short.

    Examples
    --------
    >>> at = torch.linspace(-6, 6, 60, dtype=torch.float64)
    >>> gaps = mixture_gap(0.5 * torch.nn.functional.softplus(-at), 2.0, 0.25).expand(8, -1)
    >>> found = class_information(at, gaps, 2, draws=20, generator=torch.Generator())
    >>> bool((found.entropy - mixture_entropy(0.0, 2.0, 0.25)).abs()[-1] < 2e-3)
    True
    """
    times, g = _checked(log_snr, gaps, classes)
    if not (isinstance(draws, int) and draws >= _FEWEST_DRAWS and 0 < level < 1):
        raise InvalidInputError(
            f"draws must be at least {_FEWEST_DRAWS} and level in (0, 1); found {draws} and "
            f"{level}."
        )
    rates = 0.5 * g
    gained = rates[:, :1] + torch.nn.functional.pad(
        torch.cumulative_trapezoid(rates, times, dim=1), (1, 0)
    )
    curves = torch.cat([rates, gained], 1)
    mean = curves.mean(0)
    ends = torch.tensor([(1 - level) / 2, (1 + level) / 2], dtype=mean.dtype, device=mean.device)
    bounds = torch.quantile(resampled_means(curves, draws, generator), ends, 0)
    known, K = math.log(classes), len(times)
    total, total_low, total_high = (float(x[-1]) for x in (mean, *bounds))
    return ClassInformation(
        log_snr=times,
        rate=mean[:K],
        rate_low=bounds[0, :K],
        rate_high=bounds[1, :K],
        entropy=known - mean[K:],
        low=known - bounds[1, K:],
        high=known - bounds[0, K:],
        tail=float(mean[0]),
        total=total,
        total_low=total_low,
        total_high=total_high,
        excess=total - known,
        classes=classes,
        images=len(g),
        draws=draws,
        level=level,
    )


def mixture_entropy(
    t: Float[Tensor, "*shape"] | ArrayLike | float, mu: float, s2: float
) -> Float64[Tensor, "*shape"]:
    r"""Entropy of the sign given the noised state of a mixture ±μ, in nats.

    $$H(Y\mid x_t) = \mathbb E\log(1 + e^{-2(r^2 + rz)}), \qquad r = \alpha\mu/\sqrt v$$

    Parameters
    ----------
    t
        Unit clock, ≥ 0.
    mu, s2
        Half the distance of the means and the variance of each arm. In more dimensions with equal
        variance, μ is the norm of the mean.

    Raises
    ------
    InvalidInputError
        If t < 0, s² < 0, the law has no density at t, or a number is not finite.

    Notes
    -----
    Trapezoidal rule on 6,001 points, in float64, spectrally accurate for r ≤ 30; beyond, the value
    is below 10⁻¹⁰⁰ in any case.

    Examples
    --------
    >>> [round(float(h), 4) for h in mixture_entropy([0.0, 1.0, 9.0], 2.0, 0.25)]
    [0.0001, 0.4598, 0.6931]
    """
    ratio, _ = _ratio(t, mu, s2)
    return _expected(ratio, lambda u: torch.nn.functional.softplus(-2 * u))


def mixture_u_turn(
    t: Float[Tensor, "*shape"] | ArrayLike | float, mu: float, s2: float
) -> Float64[Tensor, "*shape"]:
    r"""Probability that noising a mixture ±μ to t and coming back returns to the same arm.

    $$\varphi(t) = \tfrac12(1 + \mathbb E\tanh^2(\alpha\mu x/v))$$

    Parameters
    ----------
    t, mu, s2
        As for `mixture_entropy`.

    Raises
    ------
    InvalidInputError
        As for `mixture_entropy`.

    Notes
    -----
    One when arms are apart and t is small, ½ when nothing is remembered. The way back draws the
    class from its law given x_t, which the exact SDE does. Same quadrature.

    Examples
    --------
    >>> [round(float(p), 4) for p in mixture_u_turn([0.0, 1.0, 9.0], 2.0, 0.25)]
    [1.0, 0.6997, 0.5]
    """
    ratio, _ = _ratio(t, mu, s2)
    return 0.5 * (1 + _expected(ratio, lambda u: u.tanh().square()))


def mixture_gap(
    t: Float[Tensor, "*shape"] | ArrayLike | float, mu: float, s2: float
) -> Float64[Tensor, "*shape"]:
    r"""Mean square distance of the noise predictions with and without the class, mixture ±μ.

    $$\mathbb E\Vert\Delta\hat\varepsilon\Vert^2
      = (1-\alpha^2)(\alpha\mu/v)^2\,\mathbb E[1 - \tanh^2(\alpha\mu x/v)]$$

    Parameters
    ----------
    t, mu, s2
        As for `mixture_entropy`.

    Raises
    ------
    InvalidInputError
        As for `mixture_entropy`.

    Notes
    -----
    $\hat\varepsilon(x, Y) = \sigma(x - \alpha Y\mu)/v$, and without the class $Y$ becomes its mean
    $\tanh(\alpha\mu x/v)$. Same quadrature.

    Examples
    --------
    >>> [round(float(g), 4) for g in mixture_gap([0.0, 1.0, 9.0], 2.0, 0.25)]
    [0.0, 0.3483, 0.0]
    """
    ratio, strength = _ratio(t, mu, s2)
    # 1 − tanh² without cancellation: 4 e^{−2|u|}/(1 + e^{−2|u|})².
    spread = _expected(ratio, lambda u: 4 * torch.sigmoid(2 * u) * torch.sigmoid(-2 * u))
    return strength * spread


def _expected(
    ratio: Float64[Tensor, "*shape"], function: Callable[[Tensor], Tensor]
) -> Float64[Tensor, "*shape"]:
    """E f(r² + rz) over a standard normal z."""
    z = torch.linspace(-12, 12, 6001, dtype=torch.float64, device=ratio.device)
    mass = torch.exp(-0.5 * z.square()) * (z[1] - z[0]) / math.sqrt(2 * math.pi)
    values = [function(r * r + r * z) @ mass for r in ratio.flatten()]
    return torch.stack(values).reshape(ratio.shape)


def _ratio(
    t: Tensor | ArrayLike | float, mu: float, s2: float
) -> tuple[Float64[Tensor, "*shape"], Float64[Tensor, "*shape"]]:
    """Separation r = αμ/√v, and (1 − α²)(αμ/v)²."""
    at = as_reals(t, "t").detach().double()
    noise = -torch.expm1(-2 * at)
    alpha = torch.exp(-at)
    v = alpha.square() * s2 + noise
    if not (at.numel() and 0 <= s2 < math.inf and math.isfinite(mu) and bool((at >= 0).all())
            and bool((v > 0).all())):  # fmt: skip
        raise InvalidInputError(
            "A mixture needs times t ≥ 0, a finite mu and a variance s2 ≥ 0 with s2 > 0 at t = 0; "
            f"found mu {mu}, s2 {s2} and times from {_least(at)}."
        )
    return alpha * mu / v.sqrt(), noise * (alpha * mu / v).square()


def _least(at: Tensor) -> str:
    return f"{float(at.min()):.6g}" if at.numel() else "none"


def _checked(
    log_snr: Tensor | ArrayLike, gaps: Tensor | ArrayLike, classes: int
) -> tuple[Float64[Tensor, "K"], Float64[Tensor, "n K"]]:
    g = as_reals(gaps, "gaps").detach().double()
    times = as_reals(log_snr, "log_snr").detach().to(g)
    if times.ndim != 1 or len(times) < 2 or not bool((times.diff() > 0).all()):
        raise InvalidInputError(
            f"log_snr must be at least two numbers that increase; found shape {tuple(times.shape)}"
            ". Order the times from noise to image."
        )
    refuse(~times.isfinite(), times, "log_snr must be finite", "Leave out the ends of the clock.")
    if g.ndim != 2 or g.shape[1] != len(times) or len(g) < _FEWEST_IMAGES:
        raise InvalidInputError(
            f"gaps must have a column for each of the {len(times)} times and a row for each of at "
            f"least {_FEWEST_IMAGES} images; found shape {tuple(g.shape)}."
        )
    refuse(~g.isfinite(), g, "gaps must be finite", "Look for an overflow in the denoiser.")
    if not isinstance(classes, int) or classes < 2:
        raise InvalidInputError(f"classes must be a whole number ≥ 2; found {classes!r}.")
    return times, g
