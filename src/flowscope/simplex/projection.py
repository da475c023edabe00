r"""The nearest probability vector to a real one, in the Euclidean sense."""

import torch
from jaxtyping import Float
from torch import Tensor

from flowscope.simplex.probability import ArrayLike, as_vectors

__all__ = ["project_to_simplex"]


def project_to_simplex(x: Float[Tensor, "*batch V"] | ArrayLike) -> Float[Tensor, "*batch V"]:
    r"""Euclidean projection of any real vector onto the simplex.

    .. math:: \arg\min_{p \in \Delta} \|p - x\|_2 = (x - \theta)_+, \qquad
              \textstyle\sum_j (x_j - \theta)_+ = 1

    Parameters
    ----------
    x : finite vectors over at least two outcomes.

    Raises
    ------
    InvalidInputError
        If an entry is not finite, or there are fewer than two.

    Notes
    -----
    The support is found from one sort, O(V log V); θ and the result are computed in float64 and
    rounded once. The slope I − 11ᵀ/|S| on the support S holds almost everywhere. Held, Wolfe &
    Crowder, Math. Program. 6 (1974), pp. 62–88; not in the sources.

    Examples
    --------
    >>> project_to_simplex([0.7, 0.5, -3.0])
    tensor([0.6000, 0.4000, 0.0000], dtype=torch.float64)
    """
    vectors = as_vectors(x, "x")
    y = vectors.double()
    y = y - y.detach().amax(-1, keepdim=True)  # θ is then in [−1, 0): no digits lost to an offset
    ordered = y.detach().sort(-1, descending=True).values
    size = torch.arange(1, y.shape[-1] + 1, dtype=torch.float64, device=y.device)
    level = (ordered.cumsum(-1) - 1) / size
    last = (ordered > level).sum(-1, keepdim=True) - 1
    support = y.detach() > level.gather(-1, last)
    theta = (y.where(support, 0.0).sum(-1, keepdim=True) - 1) / support.sum(-1, keepdim=True)
    return (y - theta).clamp(min=0.0).to(vectors.dtype)
