r"""The rotation that lays one cloud of paired points over another."""

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from flowscope.errors import InvalidInputError

__all__ = ["orthogonal_map"]


def orthogonal_map(products: Float[Tensor, "d d"]) -> Float64[Tensor, "d d"]:
    r"""Orthogonal matrix that takes the points of one cloud closest to their partners.

    .. math:: \arg\min_{R^\top R = I} \sum_i \lVert x_iR - y_i\rVert^2 = UV^\top, \qquad
              \sum_i x_i^\top y_i = U\,\mathrm{diag}(s)\,V^\top

    Parameters
    ----------
    products : :math:`\sum_i x_i^\top y_i`, all that the answer depends on; sums over batches add.

    Raises
    ------
    InvalidInputError : if the products are no finite square matrix.

    Notes
    -----
    Reflections are allowed, clouds are not centred. One SVD of d³. With fewer independent pairs
    than d the products are singular, and the matrix is arbitrary where they say nothing. Source:
    Schönemann (1966).

    Examples
    --------
    >>> x = torch.randn(40, 3, dtype=torch.float64)
    >>> turn = torch.linalg.qr(torch.randn(3, 3, dtype=torch.float64)).Q
    >>> torch.allclose(orthogonal_map(x.T @ (x @ turn)), turn)
    True
    """
    square = products.ndim == 2 and products.shape[0] == products.shape[1]
    if not square or not bool(products.isfinite().all()):
        raise InvalidInputError(
            "products must be a finite square matrix, the sum of x_iᵀ y_i over pairs; found shape "
            f"{tuple(products.shape)} with {int((~products.isfinite()).sum())} numbers that are "
            "NaN or infinite."
        )
    u, _, vh = torch.linalg.svd(products.double())
    turn: Tensor = u @ vh
    return turn
