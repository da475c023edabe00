"""The transformer with its parts left out."""

import pytest
import torch

from flowscope.errors import InvalidInputError
from flowscope.pde import AblatedTransformer


def _silent(residual: bool) -> AblatedTransformer:
    model = AblatedTransformer(width=8, heads=2, blocks=3, residual=residual)
    for name, weight in model.named_parameters():
        if "output" in name:
            weight.data.zero_()
    return model


def test_silent_branches_keep_the_stream_only_with_residual() -> None:
    u = torch.randn(2, 4, 8)
    torch.testing.assert_close(_silent(True)(u), u)
    torch.testing.assert_close(_silent(False)(u), torch.zeros_like(u))


def test_path_ends_where_the_forward_pass_ends() -> None:
    torch.manual_seed(0)
    model, u = AblatedTransformer(width=8, heads=2, blocks=3, norm="none"), torch.randn(2, 4, 8)
    path = model.path(u)
    assert path.shape == (4, 2, 4, 8)
    torch.testing.assert_close(path[0], u)
    torch.testing.assert_close(path[-1], model(u))


def test_residual_adds_each_branch_to_its_input() -> None:
    torch.manual_seed(0)
    model, u = AblatedTransformer(width=8, heads=2, blocks=1), torch.randn(2, 4, 8)
    middle = u + model.attentions[0](u)
    torch.testing.assert_close(model(u), middle + model.perceptrons[0](middle))


def test_norm_makes_the_branches_blind_to_scale() -> None:
    torch.manual_seed(0)
    u = torch.randn(2, 4, 8)
    normed = AblatedTransformer(width=8, heads=2, blocks=2, residual=False)
    torch.testing.assert_close(normed(100 * u), normed(10 * u), rtol=1e-3, atol=1e-4)
    bare = AblatedTransformer(width=8, heads=2, blocks=2, residual=False, norm="none")
    assert (bare(100 * u) - bare(10 * u)).abs().max() > 0.1


def test_heads_that_do_not_divide_the_width_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="heads must divide"):
        AblatedTransformer(width=8, heads=3, blocks=1)
