"""Pairs of replicas: their noise, their starting points, and walks with a closed form."""

import dataclasses
import itertools
import math

import diffusers
import pytest
import torch
from tests.models.synthetic_pipelines import SIDE, dit, gaussian_denoiser

from flowscope.errors import InvalidInputError
from flowscope.instruments.sync.pair_sampling import PairNoise, PairSampler, replica_correlation
from flowscope.models.diffusion.denoiser import denoiser_of
from flowscope.models.loading import load

CPU = torch.device("cpu")
STEPS = 6


def noise_of(seeds, shape=(1, SIDE, SIDE), steps=STEPS):
    return PairNoise(seeds, shape=shape, steps=steps, device=CPU)


@pytest.fixture(scope="module")
def denoiser():
    model = dit()
    return denoiser_of(model, load(model), scheduler=diffusers.DDPMScheduler())


def sampler_of(denoiser, pairs, *, eta=1.0, guidance=1.0, label=1, steps=STEPS):
    return PairSampler(
        denoiser=denoiser, clock=denoiser.clock(steps), eta=eta, guidance=guidance,
        labels=torch.full((2 * pairs,), label) if denoiser.classes else None,
    )  # fmt: skip


def end(sampler, x, noise, **options):
    states = [x, *(state for _, state in sampler.walk(x, noise, **options))]
    return states[-1]


@pytest.mark.parametrize("sigma", [0.0, 0.3, 1.0, 2.0])
def test_starting_points_are_unit_noise_with_the_asked_correlation(sigma):
    r"""$\varrho(\sigma) = (1-\sigma^2)/(1+\sigma^2)$, from 4000 · 16 numbers of a fixed seed."""
    first, second = noise_of(range(4000), (1, 4, 4), 1).initial(sigma).flatten(1).chunk(2)
    many = math.sqrt(first.numel())
    for replica in (first, second):
        assert abs(float(replica.mean())) < 4 / many
        assert abs(float(replica.var()) - 1) < 4 * math.sqrt(2) / many
    law = (1 - sigma**2) / (1 + sigma**2)
    assert abs(float((first * second).mean()) - law) < 4 * math.sqrt(2) / many
    assert replica_correlation(sigma) == pytest.approx(law)


def test_without_perturbation_replicas_start_at_one_point():
    first, second = noise_of([1, 2]).initial(0.0).chunk(2)
    assert torch.equal(first, second)


@pytest.mark.parametrize("sigma", [-0.1, math.inf, math.nan])
def test_a_perturbation_that_is_no_number_is_refused(sigma):
    with pytest.raises(InvalidInputError, match="sigma must be 0 or more and finite"):
        noise_of([1]).initial(sigma)


def test_a_pair_meets_its_own_noise_in_every_batch():
    together, alone = noise_of([5, 90, 7]), noise_of([90])
    pair = [1, 4]
    assert torch.equal(together.initial(0.7)[pair], alone.initial(0.7))
    for step in range(STEPS):
        for shared in (True, False):
            assert torch.equal(
                together.at(step, shared=shared)[pair], alone.at(step, shared=shared)
            )  # fmt: skip


def test_noise_is_shared_or_independent_and_new_at_every_step():
    noise = noise_of(range(500), (1, 4, 4))
    first, second = noise.at(2, shared=True).chunk(2)
    assert torch.equal(first, second)
    own, other = noise.at(2, shared=False).chunk(2)
    assert torch.equal(own, first)  # A does not notice whether B shares
    bound = 4 / math.sqrt(own.numel())
    for drawn in (other, noise.at(3, shared=False).chunk(2)[0]):
        assert abs(float((own * drawn).mean())) < bound
    for start in noise.initial(1.0).chunk(2):
        for drawn in noise.at(0, shared=False).chunk(2):
            assert abs(float((start * drawn).mean())) < bound


def test_numbers_do_not_depend_on_how_many_steps_follow():
    short, long = noise_of([3], steps=2), noise_of([3], steps=5)
    assert torch.equal(short.initial(1.0), long.initial(1.0))
    assert torch.equal(short.at(1, shared=False), long.at(1, shared=False))


@pytest.mark.parametrize("eta", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("spread", [0.5, 1.5])
def test_sampling_a_gaussian_ends_with_its_variance(eta, spread):
    r"""Data $N(0, s^2)$, exact predictions. The chain is linear, so its variance is a recursion:

    $v' = c^2v + \sigma^2$ with $\sigma^2 = \eta^2\frac{1-\bar\alpha'}{1-\bar\alpha}
    (1-\bar\alpha/\bar\alpha')$ and $c = (\sqrt{\bar\alpha'\bar\alpha}s^2 +
    \sqrt{(1-\bar\alpha'-\sigma^2)(1-\bar\alpha)})/v_t$; with many steps it ends near $s^2$.
    """
    steps, pairs = 200, 1000
    denoiser = gaussian_denoiser(spread)
    sampler = sampler_of(denoiser, pairs, eta=eta, steps=steps)
    noise = noise_of(range(pairs), (1, 4, 4), steps)
    x = end(sampler, noise.initial(1.0), noise)
    levels, variance = [*sampler.clock.levels, 1.0], 1.0
    for now, then in itertools.pairwise(levels):
        jump = eta**2 * (1 - then) / (1 - now) * (1 - now / then)
        total = now * spread**2 + 1 - now
        kept = math.sqrt(then * now) * spread**2 + math.sqrt((1 - then - jump) * (1 - now))
        variance = (kept / total) ** 2 * variance + jump
    n = x.numel()
    assert abs(float(x.var()) / variance - 1) < 4 * math.sqrt(2 / n)
    assert abs(variance / spread**2 - 1) < 0.08
    first, second = x.chunk(2)  # replicas that were never tied are independent
    assert abs(float((first * second).mean())) / variance < 4 / math.sqrt(n / 2)


def test_shared_noise_keeps_equal_replicas_equal(denoiser):
    noise = noise_of([1, 2, 3])
    sampler = sampler_of(denoiser, 3)
    first, second = end(sampler, noise.initial(0.0), noise, shared=True).chunk(2)
    assert torch.equal(first, second)
    first, second = end(sampler, noise.initial(0.0), noise).chunk(2)
    assert not torch.allclose(first, second, atol=0.1)


def test_without_eta_a_walk_needs_no_noise(denoiser):
    """Deterministic: another noise gives the same walk, and equal replicas stay equal."""
    start = noise_of([1, 2]).initial(0.0)
    sampler = sampler_of(denoiser, 2, eta=0.0)
    x = end(sampler, start, noise_of([1, 2]))
    assert torch.equal(x, end(sampler, start, noise_of([8, 9])))
    assert torch.equal(*x.chunk(2))


def test_no_coupling_is_bitwise_no_lever(denoiser, monkeypatch):
    noise = noise_of([1, 2])
    sampler = sampler_of(denoiser, 2)
    tied = end(sampler, noise.initial(1.0), noise, g=0.7)
    # It must not be called.
    monkeypatch.setattr(
        "flowscope.instruments.sync.pair_sampling.couple", None
    )  # it must not be called
    free = end(sampler, noise.initial(1.0), noise, g=0.0)
    assert torch.equal(free, end(sampler, noise.initial(1.0), noise))
    assert not torch.allclose(free, tied, atol=1e-3)


def test_coupling_ends_with_the_walk(denoiser):
    model, x = denoiser.loaded.model, torch.randn(2, 1, SIDE, SIDE)
    given = {"timestep": torch.tensor([500, 500]), "class_labels": torch.tensor([1, 1])}
    with torch.no_grad():
        before = model(x, **given).sample
        walk = sampler_of(denoiser, 1).walk(x, noise_of([1]), g=1.0)
        next(walk)
        assert not torch.equal(model(x, **given).sample, before)
        walk.close()
        assert torch.equal(model(x, **given).sample, before)


def test_coupling_with_guidance_ties_each_branch(denoiser):
    """With g = 1 and guidance, equal replicas stay equal and unequal ones do not read a branch."""
    noise = noise_of([1, 2])
    sampler = sampler_of(denoiser, 2, eta=0.0, guidance=3.0)
    first, second = end(sampler, noise.initial(0.0), noise, g=1.0).chunk(2)
    torch.testing.assert_close(first, second, atol=1e-5, rtol=1e-5)
    plain = end(sampler, noise.initial(0.0), noise)
    torch.testing.assert_close(torch.cat([first, second]), plain, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("eta", [0.0, 1.0])
def test_a_walk_continued_from_a_state_is_one_walk(denoiser, eta):
    noise = noise_of([4, 5])
    sampler = sampler_of(denoiser, 2, eta=eta)
    states = dict(sampler.walk(noise.initial(1.0), noise))
    assert list(states) == list(range(1, STEPS + 1))
    for cut in range(1, STEPS + 1):
        assert torch.equal(end(sampler, states[cut], noise, first=cut), states[STEPS])
    assert torch.equal(end(sampler, noise.initial(1.0), noise, last=3), states[3])


@pytest.mark.parametrize(("eta", "guidance"), [(1.0, 1.0), (0.0, 3.0)])
def test_branches_walked_together_end_where_each_ends_alone(denoiser, eta, guidance):
    noise = noise_of([4, 5])
    sampler = sampler_of(denoiser, 2, eta=eta, guidance=guidance)
    states = {0: noise.initial(1.0)} | dict(sampler.walk(noise.initial(1.0), noise, g=0.5))
    chosen = {step: states[step] for step in (STEPS, 2, 0, 3)}  # in any order
    advanced = []
    found = sampler.finished(chosen, noise, advance=advanced.append)
    assert set(found) == set(chosen)
    for step, x in found.items():
        # a larger batch sums in another order
        alone = end(sampler, states[step], noise, first=step)
        torch.testing.assert_close(x, alone, atol=1e-4, rtol=1e-4)
    assert torch.equal(found[STEPS], states[STEPS])
    assert sum(advanced) == 4 + 3 + 6
    only = sampler.finished({STEPS: states[STEPS]}, noise)
    assert torch.equal(only[STEPS], states[STEPS])
    for step in (0, 2):  # one branch is the walk itself, bit by bit
        one = sampler.finished({step: states[step]}, noise)[step]
        assert torch.equal(one, end(sampler, states[step], noise, first=step))


def test_the_listener_is_told_each_step_before_it_runs(denoiser):
    told = []
    sampler = sampler_of(denoiser, 1)
    noise = noise_of([1])
    for done, _ in sampler.walk(noise.initial(1.0), noise, first=2, before=told.append):
        assert told[-1] == done - 1
    assert told == list(range(2, STEPS))


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"labels": torch.tensor([1, 2, 1, 0])}, "same label; pair 1 has 2 and 0"),
        ({"labels": torch.tensor([1, 1, 1])}, "an even number; got 3"),
        ({"labels": torch.tensor([3, 3])}, r"between 0 and 2 \(class 0 … class 2\); got \[3\]"),
        ({"labels": torch.tensor([-1, -1])}, r"between 0 and 2.*got \[-1\]"),
        ({"eta": 1.1}, r"eta must lie in \[0, 1\]; got 1.1"),
        ({"eta": math.nan}, "eta must lie"),
        ({"guidance": -1.0}, "guidance must be 0 or more"),
        ({"guidance": math.inf}, "guidance must be 0 or more"),
    ],
)
def test_what_does_not_fit_is_a_sentence(denoiser, changed, words):
    with pytest.raises(InvalidInputError, match=words):
        dataclasses.replace(sampler_of(denoiser, 1), **changed)


def test_latents_that_are_not_finite_name_step_and_replica(denoiser):
    noise = noise_of([1, 2])
    x = noise.initial(1.0)
    x[2, 0, 3, 3] = math.nan
    with pytest.raises(InvalidInputError, match=r"replica 2 are NaN.*after step 4 of 6"):
        end(sampler_of(denoiser, 2), x, noise, first=3)
