"""Step errors of two samplers against their distance: closed forms, noise, and coverage."""

import numpy as np
import pytest
import torch

from flowscope.errors import InvalidInputError
from flowscope.evidence import simultaneous
from flowscope.flows.sampling import step_budget

BINS = 8


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def certain(*laws, groups=10, scale=1000):
    """Counts without noise: every group has the same shares."""
    return [torch.tensor(law).mul(scale).expand(groups, 1, 1, -1).clone() for law in laws]


def sampled(laws, *, groups=64, values=200, seed=0):
    """Multinomial counts of groups, independent between the runs."""
    rng = np.random.default_rng(seed)
    return [
        torch.from_numpy(rng.multinomial(values, law, size=groups))[:, None, None] for law in laws
    ]


def read(runs, draws=99, seed=0):
    return step_budget(*runs, draws=draws, generator=generator(seed))


def test_excess_is_the_fine_distance_less_both_changes():
    flow, sde = [0.5, 0.3, 0.2], [0.2, 0.3, 0.5]
    fine_flow, fine_sde = [0.45, 0.3, 0.25], [0.3, 0.3, 0.4]
    found = read(certain(flow, sde, fine_flow, fine_sde))
    assert found.distance.item() == pytest.approx(0.15)
    assert found.flow.item() == pytest.approx(0.05)
    assert found.sde.item() == pytest.approx(0.1)
    assert found.noise.item() == found.flow_noise.item() == pytest.approx(0, abs=1e-12)
    assert found.excess.item() == pytest.approx(0.0, abs=1e-12)
    assert found.at_least.item() == pytest.approx(found.at_most.item())


def test_first_order_errors_of_one_law_leave_no_excess_at_twice_the_steps():
    """Errors c/K in opposite directions: the coarse runs exceed the budget, the fine do not."""
    law, lean = np.full(4, 0.25), np.array([1.0, 1.0, -1.0, -1.0]) / 2
    at = {k: (law + lean * 0.4 / k, law - lean * 0.4 / k) for k in (10, 20)}
    found = read(certain(*(x.tolist() for x in (*at[10], *at[20]))))
    coarse = 0.5 * np.abs(at[10][0] - at[10][1]).sum()
    assert coarse - found.budget.item() > 0.03
    assert found.excess.item() == pytest.approx(0, abs=1e-12)


def test_pseudo_values_are_those_of_leaving_a_group_out():
    """Bins are far from equal, so that no sign changes when a group is left out."""
    rising = np.arange(1, BINS + 1) / 36
    runs = sampled([rising, np.roll(rising, 2), rising[::-1], np.roll(rising, 5)], values=4000)
    found = read(runs)

    def plain(rows):
        p, q, fp, fq = (x[rows].sum(0)[0, 0] / x[rows].sum() for x in runs)
        tv = lambda a, b: 0.5 * (a - b).abs().sum().item()  # noqa: E731
        return tv(fp, fq) - tv(p, fp) - tv(q, fq)

    G, whole = len(runs[0]), plain(slice(None))
    assert found.pseudo_values.mean().item() == pytest.approx(whole)
    for g in (0, 7):
        without = plain([k for k in range(G) if k != g])
        jackknife = G * whole - (G - 1) * without
        assert found.pseudo_values[g, 0].item() == pytest.approx(jackknife, abs=0.1 / G)


def test_noise_is_the_distance_of_two_samples_of_one_law():
    law = np.arange(1, BINS + 1) / 36
    found = [read(sampled([law] * 4, seed=seed)) for seed in range(200)]
    distances, noises = (
        np.mean([getattr(x, n).item() for x in found]) for n in ("distance", "noise")
    )
    assert noises == pytest.approx(distances, rel=0.05)
    shifted = np.roll(law, 3)
    apart = read(sampled([law, shifted, law, shifted]))
    assert apart.noise.item() == pytest.approx(noises, rel=0.2)  # a shift of all groups is no noise


@pytest.mark.parametrize("shift", [0.0, 0.02, 0.1])
def test_bounds_with_joint_intervals_hold_the_truth(shift):
    """Truth: excess = shift. At most 7 % misses of 120; the mean lies between the bounds."""
    law = np.full(BINS, 1 / BINS)
    far = law + shift * np.tile([1, -1], BINS // 2) / (BINS / 2)
    misses = 0
    lows, highs = [], []
    for seed in range(120):
        found = read(sampled([law, far, law, far], seed=seed), draws=39)
        joint = simultaneous(found.pseudo_values.numpy(), seed=seed)
        low = found.at_least.item() - (joint.points - joint.joint.low)[0]
        high = found.at_most.item() + (joint.joint.high - joint.points)[0]
        misses += not low <= shift <= high
        lows.append(found.at_least.item())
        highs.append(found.at_most.item())
    assert misses <= 8
    assert np.mean(lows) <= shift + 1e-3
    assert shift - 1e-3 <= np.mean(highs)


def test_what_has_no_budget_is_refused():
    runs = sampled([np.full(BINS, 1 / BINS)] * 4)
    with pytest.raises(InvalidInputError, match="same shape"):
        read([runs[0][:, :, :, :4], *runs[1:]])
    with pytest.raises(InvalidInputError, match="8 groups"):
        read([x[:5] for x in runs])
    with pytest.raises(InvalidInputError, match="counts at every time"):
        read([torch.zeros_like(runs[0]), *runs[1:]])
