import pytest
import torch
from tests.flows.drift.worlds import euler_sample, one_step_error, seeded, waves, with_velocities

from flowscope.errors import InvalidInputError
from flowscope.flows.drift import (
    mean_drift,
    neighbour_drift,
    perceptron_drift,
    persistence,
    ridge_drift,
    select_drift,
)

FAMILIES = {
    "persistence": lambda s: persistence(),
    "mean": mean_drift,
    "ridge": ridge_drift,
    "neighbours": neighbour_drift,
}


def shaken(sample, noise, seed=9):
    wind = torch.randn(sample.velocities.shape, generator=seeded(seed)).double()
    return with_velocities(sample, sample.velocities + noise * wind)


@pytest.mark.parametrize(
    ("field", "right"),
    [
        (lambda t, y: -2 * y + y.flip(1), "ridge"),
        (waves, "neighbours"),
        (lambda t, y: torch.sin(9 * t) * torch.ones_like(y), "mean"),
    ],
)
def test_the_right_family_is_chosen(field, right):
    sample = shaken(euler_sample(field, n=600, r=2), 0.05)
    found = select_drift(sample, FAMILIES, generator=seeded(0))
    assert found.chosen == right
    assert set(found.preferred) == {right}
    assert found.drift.name == right
    assert [line.name for line in found.table] == list(FAMILIES)


def test_persistence_explains_nothing_exactly():
    found = select_drift(euler_sample(waves, r=2), {"still": FAMILIES["persistence"]})
    assert found.table[0].r2 == 0.0
    assert found.table[0].r2_se == 0.0


def test_outer_error_is_the_error_on_new_prompts():
    sample = shaken(euler_sample(waves, n=400, r=2), 0.5)
    new = shaken(euler_sample(waves, n=4000, r=2, seed=5), 0.5, seed=6)
    for line in select_drift(sample, FAMILIES, generator=seeded(1)).table:
        true = one_step_error(FAMILIES[line.name](sample), new)
        # Outer fits have four fifths of the prompts, so they may be a little worse.
        assert abs(line.error - true) < 4 * line.error_se + 0.05 * true


def test_noise_is_never_explained():
    """Velocities of pure noise, the same for all tokens of a prompt at a layer: R² ≤ 0."""
    fits = FAMILIES | {"perceptron": lambda s: perceptron_drift(s, width=16, generator=seeded(0))}
    for seed in range(3):
        sample = euler_sample(waves, n=160, r=2, layers=3, per_prompt=8)
        wind = torch.randn(int(sample.groups.max()) + 1, 2, generator=seeded(seed)).double()
        found = select_drift(
            with_velocities(sample, wind[sample.groups]), fits, generator=seeded(1)
        )
        for line in [*found.table, found.honest]:
            assert line.r2 <= 2 * line.r2_se


def test_training_error_would_have_been_optimistic():
    sample = euler_sample(waves, n=160, r=2, layers=3, per_prompt=8)
    wind = torch.randn(sample.velocities.shape, generator=seeded(0)).double()
    noise = with_velocities(sample, wind)
    energy = one_step_error(persistence(), noise)
    assert one_step_error(neighbour_drift(noise), noise) < energy
    assert select_drift(noise, {"near": neighbour_drift}).table[0].error > energy


def test_standard_error_is_the_spread_over_worlds():
    """Forty worlds: the error varies between them as each of them says."""
    lines = []
    for seed in range(40):
        sample = shaken(euler_sample(waves, n=60, r=2, seed=seed), 1.0, seed=100 + seed)
        lines.append(select_drift(sample, {"mean": mean_drift}).table[0])
    spread = torch.tensor([line.error for line in lines]).std()
    stated = torch.tensor([line.error_se for line in lines]).mean()
    assert 0.7 < spread / stated < 1.4


def test_impossible_selections_are_refused():
    sample = euler_sample(waves, n=12, r=2)
    with pytest.raises(InvalidInputError, match="at least one candidate"):
        select_drift(sample, {})
    with pytest.raises(InvalidInputError, match="5 folds for 3 prompts"):
        select_drift(sample, FAMILIES)
    with pytest.raises(InvalidInputError, match="5 folds for 2 prompts"):  # inside a fit
        select_drift(sample, {"ridge": ridge_drift}, folds=3)
    still = with_velocities(sample, torch.zeros_like(sample.velocities))
    with pytest.raises(InvalidInputError, match="all be zero"):
        select_drift(still, FAMILIES, folds=3)
