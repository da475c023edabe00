"""A model that answers differently twice is refused with the numbers."""

import pytest
import torch
from tests import networks
from torch import nn

import flowscope as fs
from flowscope.errors import ModelWarning, UnsupportedModelError
from flowscope.models.reading.repeats import answer_spread, refuse_noise


class _Noise(nn.Module):
    """Adds noise in every mode."""

    def __init__(self, size):
        super().__init__()
        self.size = size

    def forward(self, x):
        return x + self.size * torch.randn_like(x)


class _Counting(nn.Module):
    """Counts its passes; the count may enter the answer."""

    def __init__(self, weight):
        super().__init__()
        self.weight = weight
        self.register_buffer("passes", torch.zeros(()))

    def forward(self, x):
        self.passes += 1
        return x + self.weight * self.passes


def test_noise_is_refused_with_its_size():
    model = _Noise(0.1)
    with pytest.raises(UnsupportedModelError, match=r"_Noise cannot be measured.*differ by up to"):
        refuse_noise(model, lambda: model(torch.ones(50)))


def test_rounding_is_reported_and_equal_answers_are_not_spoken_of():
    model = _Noise(1e-6)
    assert "rounding" in refuse_noise(model, lambda: model(torch.ones(50)))
    still = nn.Linear(3, 3)
    assert refuse_noise(still, lambda: {"logits": still(torch.ones(3))}) == ""


def test_the_check_leaves_counters_and_random_numbers_alone():
    model = _Counting(0.0)
    state = torch.random.get_rng_state()
    assert answer_spread(model, lambda: model(torch.ones(2))).largest == 0
    assert int(model.passes) == 0
    noise = _Noise(0.1)
    assert answer_spread(noise, lambda: noise(torch.ones(2))).noisy
    assert torch.equal(torch.random.get_rng_state(), state)


def test_an_answer_that_depends_on_earlier_passes_is_refused():
    model = _Counting(1.0)
    with pytest.raises(UnsupportedModelError, match="earlier passes"):
        refuse_noise(model, lambda: model(torch.ones(2)))


def test_nan_twice_is_the_same_answer():
    model = nn.Identity()
    assert answer_spread(model, lambda: torch.tensor([float("nan"), 1.0])).largest == 0


def test_the_doctor_says_that_a_model_is_noisy():
    model, _ = networks.gpt2()
    model.transformer.drop = _Noise(0.5)
    found = fs.doctor(model)
    reason = next(o.because for o in found.cannot if o.what == "the same numbers twice")
    assert "differ by up to" in reason


def test_the_doctor_examines_in_evaluation_mode_and_puts_the_mode_back():
    model, _ = networks.gpt2()
    model.train()
    model.transformer.h[1].eval()
    before = [module.training for module in model.modules()]
    with pytest.warns(ModelWarning):
        found = fs.doctor(model)
    assert found.reading_error == 0.0
    assert not any(o.what == "the same numbers twice" for o in found.cannot)
    assert [module.training for module in model.modules()] == before
