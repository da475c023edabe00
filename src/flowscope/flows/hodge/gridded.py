r"""Rotation of a velocity given on a grid: no sampling, no noise, one solve.

.. math:: R = \int\langle v, a^{-1}v\rangle\,d\mu
          - \int\langle\nabla\theta, a\nabla\theta\rangle\,d\mu
"""

import numpy as np
import torch
from numpy.typing import NDArray

from flowscope.errors import InvalidInputError
from flowscope.flows.hodge.grid import mesh, projected
from flowscope.flows.hodge.outcome import Rotation, Unmeasured
from flowscope.flows.hodge.problem import Diffusion, diffusion_matrix, roots
from flowscope.flows.hodge.resampling import no_interval

__all__ = ["grid_rotation"]

_DIMENSIONS = 3


def grid_rotation(
    density: NDArray[np.float64],
    velocity: NDArray[np.float64],
    spacing: tuple[float, ...] | float,
    *,
    diffusion: Diffusion,
    mask: NDArray[np.bool_] | None = None,
    reference: NDArray[np.float64] | None = None,
) -> Rotation:
    r"""Rotational energy of a velocity on a grid, weighted by a density on it.

    .. math:: \nabla\cdot(\mu\,a\nabla\theta) = \nabla\cdot(\mu\,(u - b_R)), \qquad
              R = \int\langle w, a^{-1}w\rangle\,d\mu

    Parameters
    ----------
    density : μ at the nodes, one axis per coordinate, up to a factor.
    velocity : u at the nodes, coordinates on the last axis.
    spacing : h, one for all axes or one for each.
    diffusion : a, constant: a matrix, its diagonal or a number.
    mask : nodes that count; all by default.
    reference : b_R at the nodes; zero by default.

    Raises
    ------
    InvalidInputError
        If there are more than three axes, shapes do not match, an entry is not finite, a density
        is negative, the diffusion is singular, or the support is empty, a line, or in pieces.

    Notes
    -----
    Second order in h. Method and γ: :mod:`flowscope.flows.hodge.grid`. ``because`` says how much
    mass lies outside the mesh where that is more than 1e-3.

    Examples
    --------
    The case of errata E44, where the unweighted problem gives 5:

    >>> x, y = np.meshgrid(np.linspace(-6, 6, 121), np.linspace(-12, 12, 121), indexing="ij")
    >>> found = grid_rotation(np.exp(-(x**2) / 2 - y**2 / 8), np.stack([-y, x], -1), (0.1, 0.2),
    ...                       diffusion=1.0)
    >>> round(found.energy, 2), round(found.normalised, 2)
    (3.2, 0.64)
    """
    mu, u = np.asarray(density, np.float64), np.asarray(velocity, np.float64)
    h = np.atleast_1d(np.asarray(spacing, np.float64))
    h = np.repeat(h, mu.ndim) if h.shape == (1,) else h
    b = np.zeros_like(u) if reference is None else np.asarray(reference, np.float64)
    _check(mu, u, h, b)
    a = diffusion_matrix(diffusion, mu.ndim, torch.zeros(1))
    roots(a)  # refuses a singular one
    inside = np.ones(mu.shape, bool) if mask is None else np.asarray(mask, bool)
    if inside.shape != mu.shape:
        raise InvalidInputError(
            f"mask must have the shape {mu.shape} of the density; found {inside.shape}."
        )
    on = mesh(mu, h, a.numpy(), inside)
    v = (u - b).reshape(-1, mu.ndim)[on.nodes]
    theta = projected(on, v)
    total = on.inner(v, v)
    R = on.rotational(v, v, theta)
    none = no_interval("a gridded field has no sampling error", 0.95)
    seen = total > 0
    return Rotation(
        energy=R,
        normalised=R / total if seen else float("nan"),
        total=total,
        interval=none,
        energy_interval=none,
        p_value=float("nan"),
        null=(),
        hjb=Unmeasured(reason="a grid holds one time"),
        status="ok" if seen else "abstained",
        because=_qualified(on.dropped) if seen else "the velocity is that of the reference",
        method="grid",
        n=int(inside.sum()),
        groups=0,
        blocks=0,
        regressors=len(on.nodes),
        potentials=len(on.nodes),
        gamma=on.gamma,
        condition=on.condition,
    )


def _qualified(dropped: float) -> str:
    return f"{dropped:.1%} of the mass is outside the mesh" if dropped > 1e-3 else ""


def _check(mu: NDArray[np.float64], u: NDArray[np.float64], h: NDArray[np.float64],
           b: NDArray[np.float64]) -> None:  # fmt: skip
    if not 1 <= mu.ndim <= _DIMENSIONS:
        raise InvalidInputError(
            f"A grid has one to {_DIMENSIONS} axes; found {mu.ndim}. Use rotation() on samples."
        )
    if u.shape != (*mu.shape, mu.ndim) or b.shape != u.shape:
        raise InvalidInputError(
            f"velocity and reference must have shape {(*mu.shape, mu.ndim)}, coordinates last; "
            f"found {u.shape} and {b.shape}."
        )
    if not (np.isfinite(mu).all() and np.isfinite(u).all() and np.isfinite(b).all()):
        raise InvalidInputError(
            "density, velocity and reference must be finite; found entries that are not. Set the "
            "density to 0 and the velocity to anything finite where there is none."
        )
    if (mu < 0).any() or not (mu > 0).any():
        raise InvalidInputError(
            f"density must be nowhere negative and somewhere positive; found a smallest entry of "
            f"{mu.min():.3g} and a largest of {mu.max():.3g}."
        )
    if h.shape != (mu.ndim,) or not (h > 0).all():
        raise InvalidInputError(
            f"spacing must be one positive number, or one for each of {mu.ndim} axes; found "
            f"{h.tolist()}."
        )
