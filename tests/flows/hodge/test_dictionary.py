"""The dictionary: its gradients, and that no polynomial gradient escapes it."""

import pytest
import torch
from torch.testing import assert_close

from flowscope.errors import InvalidInputError
from flowscope.flows.hodge.dictionary import matched_dictionary


def seeded():
    return torch.Generator().manual_seed(0)


@pytest.mark.parametrize("timed", [False, True])
def test_gradients_of_the_potentials_agree_with_autograd(timed):
    g = seeded()
    z = torch.randn(2000, 3, generator=g, dtype=torch.float64)
    of = matched_dictionary(z, generator=g, timed=timed, degree=2, waves=5)
    z, t = z[:7].requires_grad_(), torch.randn(7, generator=g, dtype=torch.float64)
    potentials = of.potentials(z, t)
    for i in range(of.potential_size):
        slope = torch.autograd.grad(potentials[:, i].sum(), z, retain_graph=True)[0]
        assert_close(of.fields(z, t) @ of.gradient[i].mT, slope)


def test_every_gradient_among_the_regressors_has_its_potential():
    """Curl-free fields of degree k form a space of the dimension of potentials of degree k + 1."""
    g = seeded()
    z = torch.randn(4000, 3, generator=g, dtype=torch.float64)
    of = matched_dictionary(z, generator=g, degree=2, waves=0)
    inside = of.gradient[:, :, of.regressors :].abs().sum((1, 2)) == 0
    assert int(inside.sum()) == 19  # monomials of degree 1 to 3 in three variables
    flat = of.gradient[inside].reshape(19, -1)
    assert int(torch.linalg.matrix_rank(flat)) == 19


def test_sizes_fit_the_sample():
    g = seeded()
    for N, d in ((400, 2), (5000, 8), (5000, 16), (20_000, 32)):
        of = matched_dictionary(torch.randn(N, d, generator=g, dtype=torch.float64), generator=g)
        assert of.regressors <= N / 32
        assert of.potential_size <= N * d / 32


def test_too_small_a_sample_is_refused():
    g = seeded()
    z = torch.randn(100, 8, generator=g, dtype=torch.float64)
    with pytest.raises(InvalidInputError, match="carry at most"):
        matched_dictionary(z, generator=g)
    with pytest.raises(InvalidInputError, match="waves"):
        matched_dictionary(z[:, :2], generator=g, degree=1, waves=500)
