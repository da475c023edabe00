import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.flows.drift.worlds import seeded

from flowscope.errors import InvalidInputError
from flowscope.flows.drift import group_folds
from flowscope.flows.drift.folds import ratio_of_groups


@given(st.lists(st.integers(1, 30), min_size=5, max_size=40), st.integers(2, 5), st.integers(0, 9))
def test_folds_keep_prompts_whole_and_balance_rows(sizes, folds, seed):
    groups = torch.repeat_interleave(torch.arange(len(sizes)) * 7, torch.tensor(sizes))
    groups = groups[torch.randperm(len(groups), generator=seeded(seed))]
    fold = group_folds(groups, folds, seeded(seed))
    for g in groups.unique():
        assert len(fold[groups == g].unique()) == 1
    filled = fold.bincount(minlength=folds)
    assert filled.min() > 0
    assert filled.max() - filled.min() <= max(sizes)


def test_another_seed_makes_other_folds():
    groups = torch.arange(40)
    assert not torch.equal(group_folds(groups, 4, seeded(0)), group_folds(groups, 4, seeded(1)))
    assert torch.equal(group_folds(groups, 4, seeded(0)), group_folds(groups, 4, seeded(0)))


def test_fewer_prompts_than_folds_are_refused():
    with pytest.raises(InvalidInputError, match="5 folds for 2 prompts"):
        group_folds(torch.tensor([0, 0, 1, 1, 1, 1]), 5)


def test_standard_error_counts_prompts_and_not_tokens():
    """Ten copies of each prompt's number leave mean and error as they are."""
    x = torch.randn(30, generator=seeded(0), dtype=torch.float64)
    mean, se = ratio_of_groups(
        x.repeat_interleave(10), torch.ones(300).double(), torch.arange(300) // 10
    )
    np.testing.assert_allclose([mean, se], [x.mean(), x.std() / 30**0.5])
