r"""Paths of an Itô stochastic differential equation on a given grid.

.. math:: dX = F(t, X)\,dt + \sigma(t, X)\,dW

Three schemes, h the step and ΔW ~ N(0, h I):

.. math::
   \text{Euler–Maruyama:}\quad & x + hF(t, x) + \sigma(t, x)\,\Delta W \\
   \text{Heun:}\quad & x + \tfrac h2\bigl(F(t, x) + F(t + h, \hat x)\bigr) + \bar\sigma\,\Delta W,
     \quad \hat x = x + hF(t, x) + \bar\sigma\,\Delta W \\
   \text{exponential:}\quad & e^{Ah} x + \Phi F(t, x) + \xi, \quad
     dX = (AX + F)\,dt + \sigma\,dW

with σ̄ the noise at the middle of the step. Weak orders 1, 2, 1; the last is exact in law for
F = 0 and constant σ at any step. Strong order of Euler–Maruyama: 1 for additive noise, else ½.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.flows.sampling.coefficient import (
    Acting,
    Coefficient,
    acting,
    check_not_negative,
    psd_root,
)
from flowscope.flows.sampling.fields import (
    Field,
    as_clock,
    as_start,
    check_choice,
    check_count,
    field_at,
    refined,
)
from flowscope.flows.sampling.propagation import (
    Propagation,
    diagonal_propagation,
    matrix_propagation,
)
from flowscope.simplex.probability import ArrayLike, as_reals, refuse

__all__ = ["SdePath", "sde_path"]

Method: TypeAlias = Literal["euler_maruyama", "heun", "exponential"]
Step: TypeAlias = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]

_METHODS = ("euler_maruyama", "heun", "exponential")
_ELSEWHERE = 0.6180339887
# Two steps of a grid that differ by less are one step with rounding.
_SAME_STEP = 1e-10


@dataclass(frozen=True, kw_only=True, eq=False)
class SdePath:
    """States at the asked times; ``status`` is "diverged" if a sample stopped being finite.

    Such a sample is NaN from the first asked time at which it was not finite; the others are not
    touched. ``steps`` counts the steps of the grid.
    """

    states: Float[Tensor, "T *batch d"]
    times: Float64[Tensor, " T"]
    status: Literal["ok", "diverged"]
    because: str | None
    steps: int


def sde_path(
    drift: Field,
    noise: Coefficient,
    x0: Float[Tensor, "*batch d"] | ArrayLike,
    times: Float[Tensor, " T"] | ArrayLike,
    *,
    generator: torch.Generator,
    method: Method = "euler_maruyama",
    linear: Coefficient | None = None,
    increments: Float[Tensor, "K *batch m"] | None = None,
    substeps: int = 1,
) -> SdePath:
    r"""Samples of the solution of an Itô equation at given times.

    .. math:: dX = F(t, X)\,dt + \sigma(t, X)\,dW, \qquad X_{t_0} = x_0

    Parameters
    ----------
    drift : F(t, x), of the shape of x; for "exponential" the drift without its linear part.
    noise : σ, a number ≥ 0, a diagonal [d], a matrix [d, m], or a function of (t, x) that returns
        one of these, or one per sample ([*batch, d] or [*batch, d, m]).
    x0 : samples, coordinates on the last axis.
    times : t₀ and the times whose states are wanted, strictly increasing.
    generator : source of the noise, on its own device.
    method : "euler_maruyama"; "heun" for noise that does not depend on x; "exponential" for noise
        that does not depend on x and a constant linear part.
    linear : A of "exponential": a number, a diagonal or a matrix.
    increments : ΔW of each step instead of fresh ones, each of variance h. For step doubling
        give the coarse run the sums of the fine ones.
    substeps : equal steps per interval of the times; K = (T − 1)·substeps.

    Raises
    ------
    InvalidInputError
        If x₀ or a time is not finite, the times do not increase, the method is unknown, a shape
        does not fit, σ is negative, or σ depends on x where it must not.

    Notes
    -----
    O(K) evaluations (2K for "heun"). A given ΔW does not determine the noise ξ of "exponential":
    then ξ = ΦσΔW/h + η with η independent of ΔW, drawn from the generator. The joint law of
    (ξ, ΔW) is exact, so every run stays exact in law; two runs of different steps share their
    Brownian path at the grid but not η, whose size is O(h^{3/2}) per step. Dependence of σ on x
    is found by reading it at two states. Kloeden & Platen, Numerical Solution of SDEs (1992),
    §10.2 and §15.1; source 000 eq. (2).

    Examples
    --------
    >>> generator = torch.Generator().manual_seed(0)
    >>> x0 = torch.zeros(20_000, 1, dtype=torch.float64)
    >>> path = sde_path(lambda t, x: 0 * x, 2.0**0.5, x0, [0.0, 5.0], generator=generator,
    ...                 method="exponential", linear=-1.0)
    >>> abs(path.states[-1].var().item() - 1.0) < 0.05
    True
    """
    x = as_start(x0, axes=1)
    t = as_clock(times, x.device)
    check_choice(method, _METHODS, "method")
    check_count(substeps, "substeps")
    grid = refined(t, substeps)
    given = increments is not None
    step, width = _scheme(method, drift, noise, linear, (grid[0], x, generator if given else None))
    draws = _Increments(increments, (len(grid) - 1, *x.shape[:-1], width), generator, x)
    states = [x]
    for k in range(len(grid) - 1):
        h = grid[k + 1] - grid[k]
        x = step(grid[k], h, x, draws(k, h))
        if (k + 1) % substeps == 0:
            states.append(x)
    return _judged(torch.stack(states), t, len(grid) - 1)


def _scheme(
    method: str,
    drift: Field,
    noise: Coefficient,
    linear: Coefficient | None,
    start: tuple[Tensor, Tensor, torch.Generator | None],
) -> tuple[Step, int]:
    """The step of a scheme, and how many coordinates its ΔW has."""
    t, x, generator = start
    if linear is not None and method != "exponential":
        raise InvalidInputError(
            "linear is the constant A of method 'exponential', and of no other; found one with "
            f"method {method!r}. Make it part of the drift."
        )
    first = _noise_at(noise, t, x)
    width = first.width(x.shape[-1])
    # A constant is read once: reading costs more than a step of a small batch.
    read = noise if callable(noise) else first
    if method == "euler_maruyama":
        return _euler_maruyama(drift, read), width
    if method == "heun":
        return _heun(drift, read), width
    exact = _Exponential(drift, read, _linear_at(linear, t, x), generator)
    return exact, width if exact.generator else x.shape[-1]


def _noise_at(noise: Coefficient | Acting, t: Tensor, x: Tensor) -> Acting:
    if isinstance(noise, Acting):
        return noise
    found = acting(noise, t, x, "noise")
    check_not_negative(found, "noise")
    return found


def _additive_noise(noise: Coefficient | Acting, t: Tensor, h: Tensor, x: Tensor) -> Acting:
    """The noise in the middle of a step, refused if two states give two answers."""
    t = t + 0.5 * h
    found = _noise_at(noise, t, x)
    if not isinstance(noise, Acting) and callable(noise):
        # Elsewhere, and not where a zero of the drift or a round number may have put the state.
        other = x + _ELSEWHERE * h.sqrt() * (1 + x.abs())
        elsewhere = acting(noise, t, other, "noise")
        if found.value.shape != elsewhere.value.shape or not found.value.equal(elsewhere.value):
            raise InvalidInputError(
                "noise must not depend on x for the methods 'heun' and 'exponential', whose order "
                f"it would spoil; found two values at two states at t = {float(t):.6g}. Use "
                "'euler_maruyama'."
            )
    return found


def _euler_maruyama(drift: Field, noise: Coefficient | Acting) -> Step:
    def step(t: Tensor, h: Tensor, x: Tensor, dw: Tensor) -> Tensor:
        return x + h * field_at(drift, t, x, "drift") + _noise_at(noise, t, x)(dw)

    return step


def _heun(drift: Field, noise: Coefficient | Acting) -> Step:
    def step(t: Tensor, h: Tensor, x: Tensor, dw: Tensor) -> Tensor:
        slope = field_at(drift, t, x, "drift")
        moved = _additive_noise(noise, t, h, x)(dw)
        ahead = field_at(drift, t + h, x + h * slope + moved, "drift")
        return x + 0.5 * h * (slope + ahead) + moved

    return step


class _Exponential:
    """The exponential step; its three matrices are kept while step and noise stay the same.

    Without a generator the ΔW are fresh, and only their number matters: ξ = Q^{½}ΔW/√h. With one
    they are somebody's Brownian path, and the generator draws what they leave open.
    """

    def __init__(
        self,
        drift: Field,
        noise: Coefficient | Acting,
        linear: Acting,
        generator: torch.Generator | None,
    ) -> None:
        self.drift, self.noise, self.linear, self.generator = drift, noise, linear, generator
        self.kept: tuple[float, Acting, Propagation] | None = None

    def __call__(self, t: Tensor, h: Tensor, x: Tensor, dw: Tensor) -> Tensor:
        slope = field_at(self.drift, t, x, "drift")
        sigma = _additive_noise(self.noise, t, h, x)
        if sigma.per_sample:
            raise InvalidInputError(
                f"noise must be the same for all samples in 'exponential'; found one {sigma.kind} "
                "per sample. Return a number, a diagonal [d] or a matrix [d, m]."
            )
        made = self._propagation(float(h), sigma, x)
        full = made.transition.ndim == 2
        kind: Literal["matrix", "diagonal"] = "matrix" if full else "diagonal"
        E, Phi = (
            Acting(kind=kind, value=v, per_sample=False) for v in (made.transition, made.integral)
        )
        if self.generator is None:
            return E(x) + Phi(slope) + _root(made.covariance, made.covariance)(dw / h.sqrt())
        a = _diffusion_of(sigma, x.shape[-1], full)
        known = (Phi.value @ a @ Phi.value.mT if full else Phi.value**2 * a) / h
        # The rest is a difference of nearly equal numbers: below zero it is rounding.
        rest = _root(made.covariance - known, made.covariance)
        extra = rest(_normal(x.shape, self.generator, x))
        return E(x) + Phi(slope) + Phi(sigma(dw)) / h + extra

    def _propagation(self, h: float, sigma: Acting, x: Tensor) -> Propagation:
        if self.kept is not None and abs(h - self.kept[0]) <= _SAME_STEP * h:
            same = self.kept[1].value.shape == sigma.value.shape
            if same and self.kept[1].value.equal(sigma.value):
                return self.kept[2]
        d, A = x.shape[-1], self.linear
        if "matrix" in (A.kind, sigma.kind):
            dense = A.value if A.kind == "matrix" else (A.value * x.new_ones(d)).diag()
            made = matrix_propagation(dense, _diffusion_of(sigma, d, True), h)
        else:
            made = diagonal_propagation(A.value, sigma.value**2, h)
        self.kept = (h, sigma, made)
        return made


def _root(covariance: Tensor, scale: Tensor) -> Acting:
    if covariance.ndim < 2:
        return Acting(kind="diagonal", value=covariance.clamp_min(0).sqrt(), per_sample=False)
    value = psd_root(covariance, float(scale.abs().amax()), "covariance")
    return Acting(kind="matrix", value=value, per_sample=False)


def _diffusion_of(sigma: Acting, d: int, full: bool) -> Tensor:
    """A = σσᵀ, as a matrix if asked."""
    if sigma.kind == "matrix":
        return sigma.value @ sigma.value.mT
    square = sigma.value**2
    return (square * square.new_ones(d)).diag() if full else square


def _linear_at(linear: Coefficient | None, t: Tensor, x: Tensor) -> Acting:
    if linear is None or callable(linear):
        raise InvalidInputError(
            "linear must be constant: a number, a diagonal or a matrix; found "
            f"{'none' if linear is None else 'a function'}. Put what varies into the drift."
        )
    found = acting(linear, t, x, "linear")
    if found.kind == "matrix" and found.value.shape[-1] != x.shape[-1]:
        raise InvalidInputError(
            f"linear must be square; found shape {tuple(found.value.shape)}. It maps a state to a "
            "velocity."
        )
    return found


def _normal(shape: torch.Size | tuple[int, ...], generator: torch.Generator, x: Tensor) -> Tensor:
    return torch.randn(shape, generator=generator, dtype=x.dtype, device=generator.device).to(x)


class _Increments:
    """ΔW of step k: given, or drawn when asked for."""

    def __init__(
        self,
        given: Tensor | None,
        shape: tuple[int, ...],
        generator: torch.Generator,
        x: Tensor,
    ) -> None:
        self.shape, self.generator, self.x = shape, generator, x
        self.given = None if given is None else as_reals(given, "increments", x.device)
        if self.given is None:
            return
        if self.given.shape != shape:
            raise InvalidInputError(
                f"increments must have shape {shape} (steps, samples, noises); found "
                f"{tuple(self.given.shape)}. One row per step, each of variance h."
            )
        bad = ~self.given.isfinite()
        refuse(bad, self.given, "increments must be finite", "Draw them again.")

    def __call__(self, k: int, h: Tensor) -> Tensor:
        if self.given is not None:
            return self.given[k].to(self.x)
        return h.sqrt() * _normal(self.shape[1:], self.generator, self.x)


def _judged(states: Tensor, t: Tensor, steps: int) -> SdePath:
    lost = ~states.isfinite().all(-1)
    if not bool(lost.any()):
        return SdePath(states=states, times=t, status="ok", because=None, steps=steps)
    lost = lost.cummax(0).values
    first = int(lost.flatten(1).any(1).nonzero()[0])
    because = (
        f"{int(lost[-1].sum())} of {lost[-1].numel()} samples were not finite, the first at "
        f"t = {float(t[first]):.6g}. Take smaller steps."
    )
    states = states.masked_fill(lost[..., None], torch.nan)
    return SdePath(states=states, times=t, status="diverged", because=because, steps=steps)
