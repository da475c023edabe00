"""Alignment of two paths against closed forms."""

import pytest
import torch

from flowscope.errors import InvalidInputError
from flowscope.pde import AttentionBranch, path_alignment, persistence, straight_line


def _path(seed: int = 0) -> torch.Tensor:
    return torch.randn(4, 2, 6, 8, generator=torch.Generator().manual_seed(seed)).double()


def test_identical_paths_agree_in_every_measure() -> None:
    both = path_alignment(_path(), _path())
    one = torch.ones(3, 2).double()
    torch.testing.assert_close(both.mse, 0 * one)
    for values in (both.cosine, both.spectral, both.cka, both.skill):
        torch.testing.assert_close(values, one)


def test_orthogonal_states_have_cosine_and_kernel_alignment_zero() -> None:
    path, other = torch.zeros(2, 1, 4, 4).double(), torch.zeros(2, 1, 4, 4).double()
    path[..., 0] = torch.tensor([1.0, 2.0, -1.0, -2.0])  # centred, and orthogonal over tokens
    other[..., 1] = torch.tensor([2.0, -1.0, -2.0, 1.0])
    both = path_alignment(path, other)
    for values in (both.cosine, both.cka):
        torch.testing.assert_close(values, torch.zeros(1, 1).double())
    torch.testing.assert_close(both.mse, torch.full((1, 1), 2.0).double())


def test_persistence_has_skill_zero_and_an_opposite_step_minus_three() -> None:
    reference = _path()
    torch.testing.assert_close(
        path_alignment(persistence(reference), reference).skill, torch.zeros(3, 2).double()
    )
    mirrored = 2 * reference[:1] - reference
    torch.testing.assert_close(
        path_alignment(mirrored, reference).skill, torch.full((3, 2), -3.0).double()
    )


def test_straight_line_follows_a_constant_drift_exactly() -> None:
    start, drift = _path()[:1], _path(1)[:1]
    reference = torch.cat([start + step * drift for step in range(4)])
    torch.testing.assert_close(straight_line(reference), reference)
    assert path_alignment(persistence(reference), reference).mse.min() > 0.1


def test_kernel_alignment_ignores_rotation_and_scale() -> None:
    reference = _path()
    rotation = torch.linalg.qr(_path(2)[0, 0, :, :].T @ _path(3)[0, 0] + torch.eye(8)).Q.double()
    both = path_alignment(3 * reference @ rotation, reference)
    torch.testing.assert_close(both.cka, torch.ones(3, 2).double())
    assert both.cosine.max() < 0.9


def test_spectrum_does_not_see_a_shift_of_the_tokens() -> None:
    both = path_alignment(_path().roll(1, -2), _path())
    torch.testing.assert_close(both.spectral, torch.ones(3, 2).double())
    assert both.cosine.abs().max() < 0.6


@pytest.mark.parametrize("path", [torch.zeros(3, 2, 6, 8), torch.full((4, 2, 6, 8), torch.nan)])
def test_paths_that_cannot_be_compared_are_refused(path: torch.Tensor) -> None:
    with pytest.raises(InvalidInputError, match="path and reference must"):
        path_alignment(path, _path())


@pytest.mark.parametrize("causal", [False, True])
def test_kernel_of_attention_reproduces_what_the_branch_writes(causal: bool) -> None:
    torch.manual_seed(0)
    branch = AttentionBranch(8, 2, causal=causal).double()
    u = torch.randn(3, 5, 8).double()
    value = branch.inputs(branch.norm(u))[..., 16:].unflatten(-1, (2, 4)).transpose(1, 2)
    read = (branch.kernel(u) @ value).transpose(1, 2).flatten(-2)
    torch.testing.assert_close(branch.output(read), branch(u))
