"""Decodable information: closed forms, shuffled labels, honest folds."""

import numpy as np
import pytest
import torch
from scipy.integrate import quad

from flowscope.errors import InvalidInputError
from flowscope.pde import decodable_information


def two_classes(n, seed, apart=1.0, width=1):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, n)
    x = rng.standard_normal((n, width))
    x[:, 0] += apart * (2 * labels - 1)
    return torch.from_numpy(x), torch.from_numpy(labels), torch.arange(n) // 20


def exact_information(apart):
    def integrand(x):
        p = np.exp(-((x - apart) ** 2) / 2) / np.sqrt(2 * np.pi)
        return p * (np.log(2) - np.logaddexp(0, -2 * apart * x))

    return quad(integrand, -12, 12)[0]


@pytest.mark.parametrize("kind", ["gaussian", "softmax"])
def test_two_gaussian_classes_have_their_information(kind):
    assert exact_information(1) == pytest.approx(0.3368308, abs=5e-8)
    for seed in range(3):
        x, labels, groups = two_classes(4000, seed)
        found = decodable_information(x, labels, groups, kind=kind)
        assert found.gain == pytest.approx(0.3368308, abs=0.03)
        assert abs(found.shuffled) < 0.01


def test_the_gain_is_a_mean_over_tokens_with_sums_for_each_prompt():
    x, labels, groups = two_classes(600, 1)
    found = decodable_information(x, labels, groups)
    assert len(found.group_gains) == 30
    assert found.group_sizes.sum() == 600
    weighted = (found.group_gains * found.group_sizes).sum() / 600
    assert found.gain == pytest.approx(weighted, rel=1e-12)


def test_nothing_is_learnt_from_the_prompt_itself():
    """Labels that only name the prompt: a probe that saw it would gain log 30."""
    rng = np.random.default_rng(0)
    groups = torch.arange(30).repeat_interleave(20)
    centres = 5 * rng.standard_normal((30, 8))
    x = torch.from_numpy(centres[groups.numpy()] + rng.standard_normal((600, 8)))
    labels = torch.from_numpy(rng.permutation(30))[groups]
    assert decodable_information(x, labels, groups).gain <= 0.05


def test_noise_tells_nothing():
    rng = np.random.default_rng(3)
    x = torch.from_numpy(rng.standard_normal((2000, 6)))
    labels = torch.from_numpy(rng.integers(0, 5, 2000))
    assert abs(decodable_information(x, labels, torch.arange(2000) // 40).gain) < 0.02


def test_a_label_read_without_noise_gives_its_entropy():
    rng = np.random.default_rng(4)
    labels = torch.from_numpy(rng.choice(4, 2000, p=[0.4, 0.3, 0.2, 0.1]))
    x = 20 * torch.nn.functional.one_hot(labels, 4).double()
    x = x + torch.from_numpy(rng.standard_normal((2000, 4)))
    entropy = -sum(p * np.log(p) for p in (0.4, 0.3, 0.2, 0.1))
    assert decodable_information(x, labels, torch.arange(2000) // 40).gain == pytest.approx(
        entropy, abs=0.03
    )


def test_information_refuses_too_little():
    x, labels, groups = two_classes(100, 0)
    with pytest.raises(InvalidInputError, match="two classes"):
        decodable_information(x, torch.zeros_like(labels), groups)
    with pytest.raises(InvalidInputError, match="prompts"):
        decodable_information(x, labels, torch.zeros_like(groups))
    with pytest.raises(InvalidInputError, match="kind"):
        decodable_information(x, labels, groups, kind="deep")
    with pytest.raises(InvalidInputError, match="labels"):
        decodable_information(x, labels[:-1], groups)
