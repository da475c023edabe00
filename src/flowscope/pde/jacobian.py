r"""How strongly a block reacts to small changes of its state.

$J$ is the Jacobian of a block's *write* at one state. Four numbers say what it does there:

$$
\sigma_{\max} = \lVert J\rVert_2, \qquad
\mu_2 = \lambda_{\max}\bigl(\tfrac12(J+J^\top)\bigr), \qquad
\lambda_{\min}\bigl(\tfrac12(J+J^\top)\bigr), \qquad
\frac{\lVert J\rVert_F}{\sqrt n} .
$$

A perturbation grows at most at the rate $\mu_2$, the *logarithmic norm*: it is the leak above which
this state's linearisation contracts, $\gamma_c$ of source 001, and holds nowhere else (attention
has no global Lipschitz constant, E63). The *relative* metric $D^{-1}JD$, with
$D = \operatorname{diag}\lVert h_i\rVert$ over tokens, measures changes of each token by its own
length; without it a few massive tokens decide everything.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd import forward_ad

from flowscope.errors import InvalidInputError
from flowscope.pde.lanczos import Extremes, RitzValue, extreme_eigenvalues
from flowscope.pde.states import as_states
from flowscope.simplex.probability import ArrayLike, as_reals, refuse

__all__ = ["JacobianBound", "JacobianBounds", "euler_limit", "jacobian_bounds"]

Write = Callable[[Tensor], Tensor]
Vector = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class JacobianBound:
    """One number about a Jacobian.

    Attributes
    ----------
    value
        For the ends of a spectrum the best so far: it is never beyond the true end.
    residual
        A true value of the spectrum lies within this of ``value``; of a mean gain the standard
        error over random probes.
    converged
        Whether the residual is within the tolerance asked for.
    """

    value: float
    residual: float
    converged: bool


@dataclass(frozen=True, kw_only=True)
class JacobianBounds:
    """What a Jacobian does to small changes of the state.

    Attributes
    ----------
    sigma_max
        Largest gain, ‖J‖₂; a lower bound where it is not converged.
    log_norm
        μ₂, the largest rate of growth; a lower bound where it is not converged.
    least
        λ_min of the symmetric part; an upper bound where it is not converged.
    mean_gain
        ‖J‖_F/√n: gain of a random direction.
    products
        Products with J and its transpose, together.
    """

    sigma_max: JacobianBound
    log_norm: JacobianBound
    least: JacobianBound
    mean_gain: JacobianBound
    products: int

    @property
    def critical_leak(self) -> float:
        """γ_c: the leak above which this state's linearisation contracts; μ₂, or 0 if negative."""
        return max(self.log_norm.value, 0.0)


def jacobian_bounds(
    f: Write,
    state: Float[Tensor, "*batch N d"],
    *,
    metric: Literal["relative", "plain"] = "relative",
    products: int = 60,
    probes: int = 8,
    tolerance: float = 1e-3,
    seed: int = 0,
) -> JacobianBounds:
    """Ends of the spectrum and mean gain of the Jacobian of a write.

    Parameters
    ----------
    f
        The write as a function of the state: block minus identity. It needs forward and backward
        derivatives; fused attention kernels have no forward one, write attention out.
    state
        Where; float32 or float64.
    metric
        ``"relative"`` measures the change of each token by the length of its state, ``"plain"``
        all alike.
    products
        Most steps of Lanczos for σ_max and for the symmetric part, each; every step takes one
        product with J and one with its transpose.
    probes
        Random directions for the mean gain.
    tolerance
        Residual, relative to the value, at which a value counts as converged.
    seed
        Of the random directions.

    Raises
    ------
    InvalidInputError
        For half precision, a write of another shape or not finite, a function without forward
        derivative, a zero token under the relative metric, or numbers that are not positive.

    Examples
    --------
    >>> J = torch.tensor([[-1.0, 8.0], [0.0, -2.0]], dtype=torch.float64)
    >>> found = jacobian_bounds(lambda h: h @ J.T, torch.ones(1, 2).double(), metric="plain")
    >>> round(found.sigma_max.value, 6), round(found.log_norm.value, 6)
    (8.303131, 2.531129)
    """
    operator = _Operator(f, _checked(state, metric, products, probes, tolerance), metric)
    size = state.numel()
    gains = extreme_eigenvalues(
        lambda x: operator.transposed(operator.applied(x)), size, products, tolerance
    )
    rates = extreme_eigenvalues(
        lambda x: 0.5 * (operator.applied(x) + operator.transposed(x)), size, products, tolerance
    )
    return JacobianBounds(
        sigma_max=_root(gains, tolerance),
        log_norm=_bound(rates.largest, tolerance),
        least=_bound(rates.least, tolerance),
        mean_gain=_mean_gain(operator, size, probes, tolerance, seed),
        products=operator.products,
    )


def euler_limit(jacobian: Float[Tensor, "n n"] | ArrayLike) -> float:
    r"""Largest step for which explicit Euler does not blow up the decaying modes.

    .. math:: \min_{\operatorname{Re}\lambda < 0} \frac{2\,|\operatorname{Re}\lambda|}{|\lambda|^2}

    Parameters
    ----------
    jacobian
        Of the whole right-hand side, dense.

    Raises
    ------
    InvalidInputError
        If it is not a square matrix of finite numbers.

    Notes
    -----
    It speaks of eigenvalues: a matrix far from normal may still expand at every single step.
    Infinite where no mode decays.

    Examples
    --------
    >>> round(euler_limit([[-1.0, 10.0], [-10.0, -1.0]]), 7)
    0.019802
    """
    J = as_reals(jacobian, "jacobian")
    if J.ndim != 2 or J.shape[0] != J.shape[1]:
        raise InvalidInputError(
            f"jacobian must be one square matrix; found shape {tuple(J.shape)}."
        )
    refuse(~J.isfinite(), J, "jacobian must be finite", "Find where it overflowed.")
    values = torch.linalg.eigvals(J.double())
    decaying = values[values.real < 0]
    if not len(decaying):
        return math.inf
    return float((-2 * decaying.real / decaying.abs() / decaying.abs()).min())


class _Operator:
    """J and its transpose, in the metric, on flat float64 vectors; counts its products."""

    def __init__(self, f: Write, state: Tensor, metric: str) -> None:
        self._f, self._state, self.products = f, state, 0
        lengths = state.norm(dim=-1, keepdim=True).expand_as(state)
        self._scale = lengths if metric == "relative" else torch.ones_like(state)
        self._leaf = state.clone().requires_grad_()
        with torch.enable_grad():
            self._written = f(self._leaf)
        written = self._written.detach()
        if written.shape != state.shape:
            raise InvalidInputError(
                f"the write must have the shape of the state, {tuple(state.shape)}; found "
                f"{tuple(written.shape)}."
            )
        refuse(~written.isfinite(), written, "the write must be finite", "It overflowed here.")

    def applied(self, x: Vector) -> Vector:
        """D⁻¹JD x."""
        self.products += 1
        direction = self._scale * self._tensor(x)
        try:
            with forward_ad.dual_level():
                output = self._f(forward_ad.make_dual(self._state, direction))  # type: ignore[no-untyped-call]
                image = forward_ad.unpack_dual(output).tangent  # type: ignore[no-untyped-call]
        except (NotImplementedError, RuntimeError) as error:
            raise InvalidInputError(
                "the write has no forward derivative: an operation in it does not support it "
                f"({str(error).splitlines()[0][:200]}). Fused attention is the usual one: write "
                "it out as a softmax."
            ) from error
        if image is None:  # the write does not depend on the state
            image = torch.zeros_like(direction)
        return self._vector(image / self._scale)

    def transposed(self, x: Vector) -> Vector:
        """D Jᵀ D⁻¹ x."""
        self.products += 1
        exponent = int(np.frexp(np.abs(x).max(initial=0.0))[1])
        if not self._written.requires_grad or not x.any():
            return np.zeros_like(x)
        (image,) = torch.autograd.grad(
            self._written,
            self._leaf,
            # of size one: x is a product with J, which may be small beyond the range of float32
            self._tensor(np.ldexp(x, -exponent)) / self._scale,
            retain_graph=True,
            materialize_grads=True,
        )
        return np.ldexp(self._vector(self._scale * image), exponent)

    def _tensor(self, x: Vector) -> Tensor:
        return torch.from_numpy(x).to(self._state).reshape(self._state.shape)

    def _vector(self, image: Tensor) -> Vector:
        flat = image.detach().double().cpu().numpy().ravel()
        if not np.isfinite(flat).all():
            raise InvalidInputError(
                "a derivative of the write is not finite: it overflows or has an edge at this "
                "state. Look for a division by zero or a root of zero there."
            )
        return np.asarray(flat, dtype=np.float64)


def _checked(
    state: Tensor, metric: str, products: int, probes: int, tolerance: float
) -> Float[Tensor, "*batch N d"]:
    if not isinstance(state, Tensor) or state.dtype not in (torch.float32, torch.float64):
        raise InvalidInputError(
            "derivatives need a state in float32 or float64; found "
            f"{getattr(state, 'dtype', type(state).__name__)}. Call model.float() first."
        )
    if metric not in ("relative", "plain"):
        raise InvalidInputError(f"metric must be 'relative' or 'plain'; got {metric!r}.")
    if products < 1 or probes < 2 or not tolerance > 0:
        raise InvalidInputError(
            "products must be at least 1, probes at least 2 and tolerance positive; got "
            f"{products!r}, {probes!r} and {tolerance!r}."
        )
    x = as_states(state.detach(), "the state")
    if metric == "relative":
        lengths = x.norm(dim=-1)
        refuse(lengths == 0, lengths, "the length of a token must not be zero", "Leave it out.")
    return x


def _bound(found: RitzValue, tolerance: float) -> JacobianBound:
    settled = found.residual <= tolerance * abs(found.value) or found.residual <= 1e-12
    return JacobianBound(value=found.value, residual=found.residual, converged=settled)


def _root(gains: Extremes, tolerance: float) -> JacobianBound:
    """Largest singular value, from the largest eigenvalue θ of JᵀJ: √(θ + r) − √θ ≤ r / √θ."""
    value = math.sqrt(max(gains.largest.value, 0.0))
    residual = gains.largest.residual / value if value else math.sqrt(gains.largest.residual)
    return _bound(RitzValue(value, residual), tolerance)


def _mean_gain(
    operator: _Operator, size: int, probes: int, tolerance: float, seed: int
) -> JacobianBound:
    """Root of Hutchinson's estimate of ‖J‖²_F / n, and its error; exact in few dimensions."""
    if size <= probes:
        columns = [operator.applied(unit) for unit in np.eye(size)]
        exact = math.sqrt(float(np.square(columns).sum()) / size)
        return JacobianBound(value=exact, residual=0.0, converged=True)
    signs = np.random.default_rng(seed).integers(0, 2, (probes, size)) * 2.0 - 1.0
    squares = np.array([float(np.square(operator.applied(z)).sum()) / size for z in signs])
    value = math.sqrt(squares.mean())
    error = float(squares.std(ddof=1)) / math.sqrt(probes)
    residual = error / (2 * value) if value else 0.0
    return JacobianBound(value=value, residual=residual, converged=residual <= tolerance * value)
