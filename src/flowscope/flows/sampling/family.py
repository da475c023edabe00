r"""One family of processes with the same marginals, from no noise to all of it.

Let p(·, t) solve the Fokker–Planck equation of dX = F dt + σ dW, a = σσᵀ, and write
g = a∇log p + ∇·a with (∇·a)ᵢ = Σⱼ ∂ⱼ aᵢⱼ. For every λ ∈ [0, 1] the processes

.. math::
   \text{forward:}\quad & dX = \bigl[F - \tfrac12(1-\lambda^2)\,g\bigr](t, X)\,dt
        + \lambda\sigma\,dW \\
   \text{reverse:}\quad & dY = -\bigl[F - \tfrac12(1+\lambda^2)\,g\bigr](T-s, Y)\,ds
        + \lambda\sigma(T-s, Y)\,dW

have X_t ~ p(·, t) if X_0 ~ p(·, 0), and Y_s ~ p(·, T − s) if Y_0 ~ p(·, T). Sampling time s = T − t
increases: the reverse drift comes with its sign already turned and its clock already reversed, so
that both directions are integrated the same way. At λ = 0 both are the probability flow, once
along its velocity u = F − ½g and once against it.

Source 000 Thm. 6.2 and eq. (3). Its Thm. 6.6 puts the velocity u together with the noise a, which
spreads the stationary law N(0, 1) of F = −x, a = 2 to variance 1 + 2t.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from jaxtyping import Float
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.flows.sampling.coefficient import (
    Acting,
    Coefficient,
    Kind,
    acting,
    check_diffusion,
    symmetric_root,
)
from flowscope.flows.sampling.fields import Field, as_start, check_choice, field_at
from flowscope.simplex.probability import ArrayLike, as_reals, refuse, within_range

__all__ = ["FamilyMember", "family_drift", "score_to_velocity"]

Direction: TypeAlias = Literal["forward", "reverse"]


@dataclass(frozen=True, kw_only=True, eq=False)
class FamilyMember:
    """Drift and noise of one member, as :func:`flowscope.flows.sampling.sde_path` takes them.

    Functions of (t, x) in the direction "forward", of (s, y) with s = T − t in the direction
    "reverse". At λ = 0 the noise is zero and the drift goes to ``ode_path``.
    """

    drift: Field
    noise: Tensor | Callable[[Tensor, Tensor], Tensor]
    lam: float
    direction: Direction


def score_to_velocity(
    drift: Float[Tensor, "*batch d"] | ArrayLike,
    score: Float[Tensor, "*batch d"] | ArrayLike,
    diffusion: Tensor | ArrayLike | float,
    divergence: Float[Tensor, "*batch d"] | float = 0.0,
) -> Float[Tensor, "*batch d"]:
    r"""Velocity of the probability flow from the score.

    .. math:: u = F - \tfrac12\,(a\,\nabla\log p + \nabla\cdot a)

    Parameters
    ----------
    drift : F at the states.
    score : ∇log p at the states.
    diffusion : a there: a number ≥ 0, a diagonal [d], a matrix [d, d], or one per state.
    divergence : ∇·a there; zero for an a that does not depend on the state.

    Raises
    ------
    InvalidInputError
        If shapes do not match, something is not finite, or a is negative or not symmetric.

    Notes
    -----
    O(d), or O(d²) per state for a matrix. A singular a is accepted. Source 000 eq. (3).

    Examples
    --------
    The stationary law N(0, 1) of dX = −X dt + √2 dW stands still.

    >>> import torch
    >>> x = torch.tensor([[2.0]])
    >>> score_to_velocity(-x, -x, 2.0)
    tensor([[0.]])
    """
    F, s = as_start(drift, "drift", axes=1), as_start(score, "score", axes=1)
    if F.shape != s.shape:
        raise InvalidInputError(
            f"drift and score must have one shape; found {tuple(F.shape)} and {tuple(s.shape)}. "
            "Evaluate both at the same states."
        )
    a = acting(lambda _t, _x: _tensor(diffusion, F), F.new_zeros(()), F, "diffusion")
    check_diffusion(a.value, a.kind)
    velocity = F - 0.5 * _pull(a, s.to(F), _divergence_like(divergence, F))
    return within_range(velocity, "The velocity", infinite=True)


def family_drift(
    drift: Field,
    score: Field,
    diffusion: Coefficient,
    *,
    lam: float,
    direction: Direction = "forward",
    horizon: float | None = None,
    divergence: Field | float | None = None,
) -> FamilyMember:
    r"""Member λ of the family of processes that share the marginals of a diffusion.

    .. math:: b^\rightarrow_\lambda(t, x) = F - \tfrac12(1-\lambda^2)\,g, \qquad
              b^\leftarrow_\lambda(s, y) = -\bigl[F - \tfrac12(1+\lambda^2)\,g\bigr](T - s, y),
              \qquad g = a\,\nabla\log p + \nabla\cdot a

    Parameters
    ----------
    drift : F(t, x), forward drift of the diffusion.
    score : ∇log p(t, x) of its marginals.
    diffusion : a = σσᵀ, a number ≥ 0, a diagonal [d], a symmetric matrix [d, d], or a function of
        (t, x) that returns one of these or one per state. Singular is allowed.
    lam : λ ∈ [0, 1]: 0 the probability flow, 1 the diffusion itself.
    direction : "forward" in t, or "reverse" in sampling time s = T − t.
    horizon : T, for "reverse" only: the time at which sampling starts.
    divergence : ∇·a, a function of (t, x) or 0. Needed as soon as a is given per state.

    Raises
    ------
    InvalidInputError
        If λ is outside [0, 1], T is missing or out of place, a is negative or not symmetric, or a
        depends on the state and its divergence was not given.

    Notes
    -----
    σ is the root of each entry, or the symmetric root of a matrix: the root of a constant a is
    taken once. Source 000 Thm. 6.2; the two coefficients are those of the theory page §3.

    Examples
    --------
    >>> import torch
    >>> data = lambda t: 0.25 * (-2 * t).exp() + 1 - (-2 * t).exp()
    >>> member = family_drift(lambda t, x: -x, lambda t, x: -x / data(t), 2.0,
    ...                       lam=0.5, direction="reverse", horizon=3.0)
    >>> member.noise
    tensor(0.7071, dtype=torch.float64)
    >>> member.drift(torch.tensor(3.0), torch.tensor([[1.0]]))  # 1 − (1 + λ²)/0.25
    tensor([[-4.]])
    """
    _check_member(lam, direction, horizon)
    constant = None if callable(diffusion) else _constant(diffusion)
    sign = -1.0 if direction == "reverse" else 1.0

    def clock(t: Tensor) -> Tensor:
        return t if horizon is None else horizon - t

    def a_at(t: Tensor, x: Tensor) -> Acting:
        if constant is not None:
            return acting(constant[0], t, x, "diffusion")
        found = acting(diffusion, t, x, "diffusion")
        check_diffusion(found.value, found.kind)
        return found

    def member_drift(s: Tensor, x: Tensor) -> Tensor:
        t, a = clock(s), a_at(clock(s), x)
        pull = _pull(a, field_at(score, t, x, "score"), _divergence_at(divergence, a, t, x))
        share = 0.5 * (1 - sign * lam**2)
        return sign * (field_at(drift, t, x, "drift") - share * pull)

    def member_noise(s: Tensor, x: Tensor) -> Tensor:
        a = a_at(clock(s), x)
        return lam * symmetric_root(a.value, a.kind)

    noise = member_noise if constant is None else lam * constant[1]
    return FamilyMember(drift=member_drift, noise=noise, lam=lam, direction=direction)


def _check_member(lam: float, direction: str, horizon: float | None) -> None:
    check_choice(direction, ("forward", "reverse"), "direction")
    if not 0 <= lam <= 1:
        raise InvalidInputError(
            f"lam must be in [0, 1], from the probability flow to the full noise; found {lam:.6g}. "
            "It multiplies σ, not a."
        )
    if (horizon is None) == (direction == "reverse"):
        found = "none" if horizon is None else f"{horizon:.6g}"
        raise InvalidInputError(
            f"horizon is the time T at which sampling starts, needed for direction 'reverse' and "
            f"for no other; found {found} with {direction!r}. The reverse clock is s = T − t."
        )


def _tensor(value: Tensor | ArrayLike | float, x: Tensor) -> Tensor:
    return as_reals(value, "diffusion", x.device)


def _constant(diffusion: Tensor | ArrayLike | float) -> tuple[Tensor, Tensor]:
    """A constant a and its root."""
    a = as_reals(diffusion, "diffusion")
    refuse(~a.isfinite(), a, "diffusion must be finite", "Pass a = σσᵀ.")
    if a.ndim > 2:
        raise InvalidInputError(
            f"diffusion must be a number, a diagonal or a matrix; found {a.ndim} axes. Pass a "
            "function of (t, x) if it depends on the state."
        )
    kinds: tuple[Kind, ...] = ("scalar", "diagonal", "matrix")
    return a, symmetric_root(a, kinds[a.ndim])


def _pull(a: Acting, score: Tensor, divergence: Tensor | float) -> Tensor:
    """What the family takes off the drift in shares: g = a∇log p + ∇·a."""
    return a(score) + divergence


def _divergence_at(
    divergence: Field | float | None, a: Acting, t: Tensor, x: Tensor
) -> Tensor | float:
    if divergence is None and a.per_sample:
        raise InvalidInputError(
            "divergence must be given when the diffusion is: a function that returned one "
            f"{a.kind} per state may depend on the state, and then ∇·a counts; found none. Pass "
            "(∇·a)(t, x), or 0 if a depends on time alone."
        )
    if callable(divergence):
        return field_at(divergence, t, x, "divergence")
    return _divergence_like(0.0 if divergence is None else divergence, x)


def _divergence_like(divergence: Tensor | float, x: Tensor) -> Tensor | float:
    if isinstance(divergence, float):
        return divergence
    value = as_reals(divergence, "divergence", x.device).to(x)
    if value.ndim and value.shape != x.shape:
        raise InvalidInputError(
            f"divergence must be a number or have the shape of the states, {tuple(x.shape)}; "
            f"found {tuple(value.shape)}. It is a vector: (∇·a)ᵢ = Σⱼ ∂ⱼ aᵢⱼ."
        )
    return value
