r"""Gains of a replica difference along fixed modes, and the eigenvalue that decides on its growth.

Along unit modes $r_k$ (for example the principal axes of the differences at the first step)

$$
\eta_k(g) = r_k^\top K_g r_k = (1 + \lambda_k^{\rm MLP}) + \rho(g)\,\chi_k + \pi_k(g)
$$

with the contributions of the direct, the routing and both pattern channels of
`flowscope.replica.propagator`; what source 004 assumes about them is measured in
`flowscope.replica.structure`.

What can be read without a model of the score is the eigenvalue of largest real part of the
measured $K_g$. A derivative of the live block already contains the linear part of the score, so
$\lambda_{\max}(K_g) = 1$ is the onset of speciation itself (E84).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Complex, Float
from numpy.typing import NDArray
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.replica.propagator import Propagator

__all__ = [
    "LeadingEigenvalue",
    "ModalGains",
    "leading_eigenvalue",
    "modal_gains",
]

_EVERY = 5  # products between two looks at the Ritz values
_UNIT = 1e-4  # how far from one the length of a mode may be: float32 modes of large states


@dataclass(frozen=True, kw_only=True, eq=False)
class ModalGains:
    """Gains along modes, by channel; one row per mode, then the batch of the state."""

    direct: Float[Tensor, "modes *batch"]
    routing: Float[Tensor, "modes *batch"]
    query: Float[Tensor, "modes *batch"]
    key: Float[Tensor, "modes *batch"]

    @property
    def total(self) -> Float[Tensor, "modes *batch"]:
        """η_k(g)."""
        return self.direct + self.routing + self.query + self.key


def modal_gains(
    propagator: Propagator, modes: Float[Tensor, "modes *batch N width"], g: float
) -> ModalGains:
    r"""Gains $\eta_k(g) = r_k^\top K_g r_k$, by channel.

    Parameters
    ----------
    propagator
        $K_g$ at a state or a batch of states.
    modes
        Unit vectors $r_k$ over tokens and width; the same for every state of a batch, or one each.
    g
        Coupling strength in [0, 1].

    Raises
    ------
    InvalidInputError
        If modes do not fit the state or are not of length one.

    Notes
    -----
    Source 004 eqs 44–47. Cost: `Propagator.channels` for as many directions as modes.

    Examples
    --------
    >>> from flowscope.replica import ReplicaBlock
    >>> block = ReplicaBlock(lambda H: 3 * (H[None],), lambda H, o: 2 * H + o[0], 0.0)
    >>> constant = torch.full((1, 4, 1), 0.5)
    >>> modal_gains(Propagator(block, torch.zeros(4, 1)), constant, 0.0).total
    tensor([3.])
    """
    r = fitted_modes(modes, propagator)
    channels = propagator.channels(r, g)
    return ModalGains(
        direct=inner_product(r, channels.direct),
        routing=inner_product(r, channels.routing),
        query=inner_product(r, channels.query),
        key=inner_product(r, channels.key),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class LeadingEigenvalue:
    """The eigenvalue of largest real part of a propagator.

    Attributes
    ----------
    value
        The eigenvalue, of a conjugate pair the one with positive imaginary part. The best so far
        where it is not converged: then say no more than that.
    residual
        ‖Kv − λv‖ / ‖v‖ of its vector, measured.
    converged
        Whether the residual is within the tolerance.
    products
        Products with K that it took.
    """

    value: complex
    residual: float
    converged: bool
    products: int


def leading_eigenvalue(
    propagator: Propagator, g: float, *, tolerance: float = 1e-6, products: int = 200
) -> LeadingEigenvalue:
    r"""Eigenvalue of $K_g$ with the largest real part; growth along it begins where it passes 1.

    Parameters
    ----------
    propagator, g
        The operator. For a batch of states it is the largest over all of them.
    tolerance
        Residual relative to max(1, |λ|). States in float32 do not get far below 1e-6.
    products
        Most products with K. What was found by then is returned, marked as not converged.

    Raises
    ------
    InvalidInputError
        If the tolerance or the number of products is not positive.

    Notes
    -----
    Arnoldi without restarts from a fixed start, orthogonalised twice: it holds as many vectors of
    the size of the state as products, float64. Where the space is whole the answer is exact. The
    residual is a backward error: how far λ may be off also depends on how far K is from normal.

    Examples
    --------
    >>> from flowscope.replica import ReplicaBlock
    >>> block = ReplicaBlock(lambda H: 3 * (H[None],), lambda H, o: 2 * H + o[0], 0.0)
    >>> found = leading_eigenvalue(Propagator(block, torch.zeros(2, 1).double()), 0.0)
    >>> round(found.value.real, 9), found.converged
    (3.0, True)
    """
    if not tolerance > 0 or products < 1:
        raise InvalidInputError(
            f"tolerance and products must be positive; got {tolerance!r} and {products!r}."
        )
    H0, taken = propagator.H0, 0

    def product(x: NDArray[np.float64]) -> NDArray[np.float64]:
        nonlocal taken
        taken += 1
        h = torch.from_numpy(x.reshape(H0.shape)).to(H0)
        image: NDArray[np.float64] = propagator.apply(h, g).double().cpu().numpy().ravel()
        return image

    value, v = _leading_ritz_pair(product, H0.numel(), products, tolerance)
    image = product(v.real.copy()) + 1j * (product(v.imag.copy()) if value.imag else 0)
    residual = float(np.linalg.norm(image - value * v) / np.linalg.norm(v))
    settled = residual <= tolerance * max(1.0, abs(value))
    return LeadingEigenvalue(value=value, residual=residual, converged=settled, products=taken)


def _leading_ritz_pair(
    product: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    size: int,
    most: int,
    tolerance: float,
) -> tuple[complex, Complex[NDArray[np.complex128], "size"]]:
    """Ritz value of largest real part, and its vector, of the first Krylov space that has it."""
    most = min(most, size)
    start = np.random.default_rng(0).standard_normal(size)
    basis = np.empty((most + 1, size))
    basis[0] = start / np.linalg.norm(start)
    H = np.zeros((most + 1, most))
    for m in range(1, most + 1):
        w = product(basis[m - 1])
        length = np.linalg.norm(w)
        for _ in range(2):  # once leaves a part of what was there
            known = basis[:m] @ w
            w = w - known @ basis[:m]
            H[:m, m - 1] += known
        left = float(np.linalg.norm(w))
        whole = left <= 1e-14 * length or m == most
        if whole or m % _EVERY == 0:
            values, vectors = np.linalg.eig(H[:m, :m])
            best = int(np.lexsort((values.imag, values.real))[-1])
            value, y = complex(values[best]), vectors[:, best]
            small = left * abs(y[-1]) <= 0.3 * tolerance * max(1.0, abs(value))
            if whole or small:
                break
        H[m, m - 1] = left
        basis[m] = w / left
    return value, np.asarray(y @ basis[:m], dtype=np.complex128)


def inner_product(
    r: Float[Tensor, "*modes N width"], image: Float[Tensor, "*modes N width"]
) -> Float[Tensor, "*modes"]:
    """Inner product of states, over tokens and width.

    Examples
    --------
    >>> inner_product(torch.ones(2, 3), torch.ones(2, 3))
    tensor(6.)
    """
    return (r * image).sum((-2, -1))


def fitted_modes(
    modes: Float[Tensor, "modes *batch N width"], propagator: Propagator
) -> Float[Tensor, "modes *batch N width"]:
    """The modes as directions of the state, shared ones repeated over its batch.

    Raises
    ------
    InvalidInputError
        If modes do not fit the state or are not of length one.
    """
    shape = propagator.H0.shape
    if modes.ndim == 3 and modes.shape[1:] == shape[-2:]:
        axes = (len(modes), *(1 for _ in shape[:-2]), *shape[-2:])
        modes = modes.reshape(axes).expand(len(modes), *shape)
    if modes.shape[1:] != shape:
        raise InvalidInputError(
            f"modes must have the shape of the state, {tuple(shape)}, or of its tokens and width, "
            f"after one axis of modes; got {tuple(modes.shape)}."
        )
    length = modes.norm(dim=(-2, -1))
    if not bool(((length - 1).abs() <= _UNIT).all()):
        raise InvalidInputError(
            f"modes must be of length one over tokens and width; found lengths from "
            f"{float(length.min()):.4g} to {float(length.max()):.4g}. Divide by them."
        )
    return modes.to(propagator.H0)
