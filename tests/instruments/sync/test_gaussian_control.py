"""The Gaussian control: exact denoising, a closed form of its order, and when it cannot be made."""

import itertools
import math
from types import SimpleNamespace

import diffusers
import numpy as np
import pytest
import torch
from tests.instruments.tiny import shown
from tests.models.synthetic_pipelines import dit, pooled

import flowscope as fs
from flowscope.errors import InvalidInputError
from flowscope.instruments.sync.commitment.control import released_distances
from flowscope.instruments.sync.commitment.gaussian import (
    GaussianDenoiser,
    GaussianImages,
    cosine_transform,
    gaussian_images,
)
from flowscope.instruments.sync.commitment.order_rule import decision_steps
from flowscope.instruments.sync.commitment.outcomes import intervention_steps
from flowscope.instruments.sync.config import SyncConfig
from flowscope.lab import engine

SIDE = 8
KEYS = [(0.5, False), (1.0, False), (0.0, True)]


def surroundings(side=SIDE):
    return SimpleNamespace(
        schedule=dict(diffusers.DDIMScheduler(clip_sample=False).config), shape=(1, side, side),
        device=torch.device("cpu"), decoded=lambda x: x,
    )  # fmt: skip


def law_of(power, side=SIDE):
    place = torch.arange(side, dtype=torch.float64)
    spectrum = (1 + torch.hypot(place[:, None], place[None])) ** power
    return GaussianImages(
        mean=torch.zeros(1, side, side, dtype=torch.float64),
        spectrum=(spectrum / spectrum.mean() / 4)[None],
        directions=torch.zeros(0, side * side, dtype=torch.float64),
        strengths=torch.zeros(0, dtype=torch.float64),
    )


def images_of(law, count, seed=0):
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randn(count, *law.spectrum.shape, generator=generator, dtype=torch.float64)
    return cosine_transform(drawn * law.spectrum.sqrt(), inverse=True).float()


def gaps_of(law, *, pairs=64, steps=16):
    config = SyncConfig(pairs=pairs, steps=steps)
    found = released_distances(GaussianDenoiser(law, surroundings()), config, 0, KEYS)
    at = np.asarray(intervention_steps(config), float)
    return [np.diff([decision_steps(at, d.mean(0)) for d in found[key]]).item() for key in KEYS]


def test_the_cosine_transform_is_orthonormal():
    x = torch.randn(3, 2, 6, 5, dtype=torch.float64)
    y = cosine_transform(x)
    torch.testing.assert_close(cosine_transform(y, inverse=True), x)
    torch.testing.assert_close(y.square().sum((1, 2, 3)), x.square().sum((1, 2, 3)))


def test_denoising_is_the_formula_of_a_full_covariance():
    """Spectrum plus directions, by Woodbury, against a dense solve."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(64, 2, 6, 5, generator=generator, dtype=torch.float64)
    images[:, 0] += 3 * torch.randn(64, 1, 1, generator=generator, dtype=torch.float64) + 1
    law = gaussian_images(images, 4)
    full = torch.diag(law.spectrum.flatten()) + law.directions.mT @ (
        law.strengths[:, None] * law.directions
    )
    level, x = 0.3, torch.randn(5, 2, 6, 5, generator=generator, dtype=torch.float64)
    exact = GaussianDenoiser(law, surroundings())
    away = cosine_transform(x).flatten(1) - math.sqrt(level) * law.mean.flatten()
    noisy = level * full + (1 - level) * torch.eye(60, dtype=torch.float64)
    moved = (full @ torch.linalg.solve(noisy, away.mT)).mT
    expected = law.mean.flatten() + math.sqrt(level) * moved
    found = cosine_transform(exact.denoised(x, level)).flatten(1)
    torch.testing.assert_close(found, expected)


def exact_gap(law, key, steps=16):
    """Order of the scales without sampling: variances of the difference follow by recursion.

    One coefficient of variance v: the step keeps a share of the state and adds noise; the tie
    keeps (1 − g)/(1 + g) of the denoised difference.
    """
    g, shared = key
    config = SyncConfig(pairs=8, steps=steps)
    levels = [*GaussianDenoiser(law, surroundings()).clock(steps).levels, 1.0]
    v, at = law.spectrum[0].double(), intervention_steps(config)
    loss = []
    for cut in at:
        spread = torch.ones_like(v)  # of the difference over √2
        for step, (now, then) in enumerate(itertools.pairwise(levels)):
            tied = step < cut
            jump = (1 - then) / (1 - now) * (1 - now / then)
            share = (1 - g) / (1 + g) if tied and not shared else 1.0
            clean = share * math.sqrt(now) * v / (now * v + 1 - now)
            noise = (1 - math.sqrt(now) * clean) / math.sqrt(1 - now)
            kept = math.sqrt(then) * clean + math.sqrt(max(1 - then - jump, 0.0)) * noise
            spread = kept**2 * spread + (0.0 if tied and shared else jump)
        loss.append(spread)
    basis = cosine_transform(
        torch.eye(SIDE * SIDE, dtype=torch.float64).reshape(-1, 1, SIDE, SIDE), inverse=True
    )
    pooled_part = torch.nn.functional.adaptive_avg_pool2d(basis, SIDE // 4)
    grown = torch.nn.functional.interpolate(pooled_part, (SIDE, SIDE), mode="bilinear")
    weights = [part.square().sum((1, 2, 3)) for part in (pooled_part, basis - grown)]
    curves = [[float((w * s.flatten()).sum()) for s in loss] for w in weights]
    coarse, fine = decision_steps(np.asarray(at, float), np.asarray(curves))
    return fine - coarse


@pytest.mark.parametrize("power", [0.0, -2.0, 2.0])
def test_the_order_of_gaussian_images_has_a_closed_form(power):
    """White images have no order, red ones decide the coarse scale first, blue ones the fine."""
    law = law_of(power)
    for key, found in zip(KEYS, gaps_of(law, pairs=512), strict=True):
        noise = 0.35 if key[1] else 0.12  # four deviations of 512 pairs
        assert found == pytest.approx(exact_gap(law, key), abs=noise)
    gaps = [exact_gap(law, key) for key in KEYS]
    if power == 0:
        np.testing.assert_allclose(gaps, 0, atol=1e-6)
    else:
        assert all(gap * power < -0.2 * abs(power) for gap in gaps)


@pytest.mark.parametrize(("power", "bound"), [(0.0, 0.2), (-2.0, 0.35), (2.0, 0.2)])
def test_the_order_of_an_estimated_covariance_is_that_of_the_true_one(power, bound):
    law = law_of(power)
    found = gaps_of(gaussian_images(images_of(law, 128), 0))
    np.testing.assert_allclose(found, gaps_of(law), atol=bound)


def test_few_broken_or_equal_images_have_no_covariance():
    white = torch.randn(7, 1, SIDE, SIDE)
    with pytest.raises(InvalidInputError, match="needs 8 finite images or more; got 7"):
        gaussian_images(white, 0)
    broken = torch.randn(20, 1, SIDE, SIDE)
    broken[3, 0, 0, 0] = math.nan
    with pytest.raises(InvalidInputError, match="finite"):
        gaussian_images(broken, 0)
    with pytest.raises(InvalidInputError, match="do not differ"):
        gaussian_images(white[:1].expand(20, -1, -1, -1), 0)


def test_a_tie_ends_with_its_block():
    exact = GaussianDenoiser(law_of(-2.0), surroundings())
    x = torch.randn(4, 1, SIDE, SIDE)
    free = exact.noise(x, 500)
    with exact.tied(1.0):
        first, second = exact.noise(x, 500).chunk(2)
        torch.testing.assert_close(first, second)  # one denoised image for both
        middle = sum(free.chunk(2)) / 2
        torch.testing.assert_close(first, middle)
    with exact.tied(0.5):
        first, second = exact.noise(x, 500).chunk(2)
        one, other = free.chunk(2)
        torch.testing.assert_close(first - second, (one - other) / 3)
    torch.testing.assert_close(exact.noise(x, 500), free)


def test_pure_noise_says_nothing_of_the_image():
    """A schedule may end without any signal."""
    law = gaussian_images(1 + torch.randn(32, 1, SIDE, SIDE), 2)
    found = GaussianDenoiser(law, surroundings()).denoised(torch.randn(3, 1, SIDE, SIDE), 0.0)
    expected = cosine_transform(law.mean[None], inverse=True).float().expand(3, -1, -1, -1)
    torch.testing.assert_close(found, expected)


SMALL = {
    "steps": 6, "interventions": 6, "couplings": (1.0,), "resamples": 20, "draws": 39, "kept": 2,
    "propagation": False, "encoder": pooled,
}  # fmt: skip


def test_a_run_is_judged_again_from_its_folder(tmp_path):
    found = fs.sync(dit(), scheduler=diffusers.DDPMScheduler(), out=tmp_path / "run", pairs=8,
                    finals=20, **SMALL)  # fmt: skip
    table = found.run.read_table("commitment_order")
    assert set(table["control"]) == {False, True}
    assert found.run.read_arrays("commitment_order")["finals"].tolist() == [20]
    before = {v.name: (v.outcome, v.because) for v in found.verdicts}
    found.run.write_verdicts([])
    engine.rejudge(found)
    again = {v.name: (v.outcome, v.because) for v in found.run.read_verdicts()}
    assert again == before
    assert "R1" in shown("sync", found.to_json())


def test_a_run_with_too_few_images_for_a_control_says_so(tmp_path):
    found = fs.sync(dit(), scheduler=diffusers.DDPMScheduler(), out=tmp_path / "run", pairs=4,
                    finals=0, **SMALL)  # fmt: skip
    verdict = next(v for v in found.verdicts if v.name == "R1")
    assert verdict.outcome == "abstains"
    assert "the control cannot be made: it needs 16 images of each class" in verdict.because
    assert "this run has 8" in verdict.because
    noted = {m.name: m.because for m in found.run.read_measurements()}
    assert "16 images" in noted["gaussian_control"]
