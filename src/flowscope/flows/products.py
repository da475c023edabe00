r"""Products of float32 states with half-precision weights, summed in float32.

A product in float32 widens the weights: four bytes a weight, and no tensor cores. The weights are
exact in their own dtype, and the state is the sum of two parts that are,

.. math:: x \approx x_1 + x_2, \qquad x_1 = \operatorname{half}(x), \quad
          x_2 = \operatorname{half}(x - x_1), \qquad U x \approx U x_1 + U x_2,

so that two products of the hardware, with float32 sums and a float32 result, say what the float32
product says: the state keeps 16 bits in bfloat16 and 22 in float16. *Own operands* are one product:
the state as the model itself rounds it.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Float32
from torch import Tensor

from flowscope.errors import InvalidInputError

__all__ = [
    "HALVES",
    "LinearProduct",
    "exact_product",
    "has_wide_result",
    "own_product",
    "split_parts",
    "split_product",
]

HALVES = (torch.bfloat16, torch.float16)

# A weight up to so many bytes is laid out twice, so that both parts of a state are one product.
_TWICE = 2**27

# float16 holds numbers up to 2^16: rows are scaled so that their largest entry is about this.
_SIZE = 8


def split_parts(
    x: Float32[Tensor, "rows d"], dtype: torch.dtype
) -> tuple[Float[Tensor, "rows d"], Float[Tensor, "rows d"]]:
    r"""Two parts of x in a half-precision dtype whose sum is nearly x.

    .. math:: x_1 = \operatorname{half}(x), \qquad x_2 = \operatorname{half}(x - x_1)

    Parameters
    ----------
    x : states in float32.
    dtype : bfloat16 or float16.

    Raises
    ------
    InvalidInputError
        If the dtype is no half precision.

    Examples
    --------
    >>> one, two = split_parts(torch.tensor([[1.001]]), torch.bfloat16)
    >>> one.item(), round(two.item(), 6)
    (1.0, 0.000999)
    """
    if dtype not in HALVES:
        raise InvalidInputError(
            f"parts are in bfloat16 or float16; found {dtype}. Multiply wider weights as they are."
        )
    first = x.to(dtype)
    return first, (x - first).to(dtype)


def has_wide_result(weight: Tensor) -> bool:
    """Whether products with a weight have float32 sums and a float32 result on its device.

    Examples
    --------
    >>> has_wide_result(torch.zeros(2, 2, dtype=torch.bfloat16))  # on the CPU
    False
    """
    return weight.is_cuda and weight.dtype in HALVES


def split_product(
    x: Float32[Tensor, "rows d"],
    weight: Float[Tensor, "V d"],
    *,
    out: Float32[Tensor, "rows V"] | None = None,
) -> Float32[Tensor, "rows V"]:
    r"""X Uᵀ from two products with float32 sums.

    .. math:: z = x_1 U^\top + x_2 U^\top

    Parameters
    ----------
    x : states in float32.
    weight : U, in bfloat16 or float16; never copied.
    out : where the result is written, if given.

    Notes
    -----
    Two products of the tensor cores on a CUDA device, 2.6 times the bare one where a float32
    product takes 15 times as long (H200, d 4096, V 128,256). Elsewhere both run in float32, which
    is for tests: the widened weights cost as much as they save. Relative error of z about 2^-17
    times |x||u| in bfloat16.

    Examples
    --------
    >>> weight = torch.eye(2, dtype=torch.bfloat16)
    >>> split_product(torch.tensor([[1.001, 2.0]]), weight).round(decimals=5)
    tensor([[1.0010, 2.0000]])
    """
    if weight.dtype == torch.float16:
        return _scaled_product(x, weight, out)
    first, second = split_parts(x, weight.dtype)
    return _added(own_product(first, weight, out=out), second, weight)


def own_product(
    x: Float[Tensor, "rows d"],
    weight: Float[Tensor, "V d"],
    *,
    dtype: torch.dtype | None = None,
    out: Float32[Tensor, "rows V"] | None = None,
) -> Float32[Tensor, "rows V"]:
    r"""X Uᵀ with float32 sums and a float32 result, both operands in half precision.

    Parameters
    ----------
    x : states, rounded to the dtype.
    weight : U, in bfloat16 or float16 and then never copied on a CUDA device, or the same widened.
    dtype : that of the model's weight; by default that of U.
    out : where the result is written, if given.

    Examples
    --------
    >>> own_product(torch.tensor([[1.001]]), torch.ones(1, 1, dtype=torch.bfloat16))
    tensor([[1.]])
    """
    rounded = x.to(dtype or weight.dtype)
    if has_wide_result(weight):
        return torch.mm(rounded, weight.mT, out_dtype=torch.float32, out=out)
    return torch.mm(rounded.float(), weight.float().mT, out=out)


def exact_product(weight: Float[Tensor, "V d"], *, stays: bool = True) -> Callable[..., Tensor]:
    r"""The product that says what a float32 product with this weight says.

    .. math:: z = [x_1, x_2]\,[U, U]^\top

    Parameters
    ----------
    weight : U, in bfloat16 or float16.
    stays : whether U stays on its device; one that is off-loaded is never copied.

    Returns
    -------
    :func:`split_product`, or the same as one product with a weight that is laid out twice: for
    bfloat16 weights up to 128 MB on a CUDA device, whose second product would take longer to read
    and write the result than to compute it.

    Examples
    --------
    >>> exact_product(torch.zeros(3, 2, dtype=torch.bfloat16)) is split_product  # on the CPU
    True
    """
    small = weight.nbytes <= _TWICE and weight.dtype == torch.bfloat16
    if not (small and stays and has_wide_result(weight)):
        return split_product
    try:
        return _joined_product(weight)
    except torch.OutOfMemoryError:  # the model leaves no room for a copy of its head
        return split_product


def _joined_product(weight: Float[Tensor, "V d"]) -> Callable[..., Tensor]:
    twice = torch.cat([weight, weight], 1)

    def product(x: Tensor, weight: Tensor, *, out: Tensor | None = None) -> Tensor:
        return own_product(torch.cat(split_parts(x, weight.dtype), 1), twice, out=out)

    return product


@dataclass(frozen=True)
class LinearProduct:
    """A product of this module as ``torch.nn.functional.linear`` is called, with room for a result.

    Examples
    --------
    >>> product = LinearProduct(split_product)
    >>> product(torch.ones(1, 1, 2), torch.ones(3, 2, dtype=torch.bfloat16)).shape
    torch.Size([1, 1, 3])
    """

    of: Callable[..., Tensor]
    __name__ = "linear"

    def __call__(
        self, x: Tensor, weight: Tensor, bias: Tensor | None = None, out: Tensor | None = None
    ) -> Tensor:
        """The product, and the bias added to it."""
        z = self.of(x.reshape(-1, x.shape[-1]), weight, out=out)
        if bias is not None:
            z += bias
        return z.view(*x.shape[:-1], z.shape[-1])


def _added(
    z: Float32[Tensor, "rows V"], x: Float[Tensor, "rows d"], weight: Float[Tensor, "V d"]
) -> Float32[Tensor, "rows V"]:
    """Add x Uᵀ to z, in place."""
    if has_wide_result(weight):
        return torch.addmm(z, x, weight.mT, out_dtype=torch.float32, out=z)
    return z.addmm_(x.float(), weight.float().mT)


def _scaled_product(
    x: Float32[Tensor, "rows d"], weight: Float[Tensor, "V d"], out: Tensor | None
) -> Float32[Tensor, "rows V"]:
    """The same with rows scaled by powers of two, because float16 holds few of them."""
    exponent = torch.frexp(x.abs().amax(-1, keepdim=True)).exponent - _SIZE
    first, second = split_parts(torch.ldexp(x, -exponent), weight.dtype)
    z = _added(own_product(first, weight, out=out), second, weight)
    return z.mul_(torch.ldexp(torch.ones_like(z[:, :1]), exponent))
