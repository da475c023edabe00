"""Protocol I: a closed form on Gaussian data, what each shard costs, and how a sweep resumes."""

import itertools
import math

import diffusers
import numpy as np
import pytest
import torch
from tests.models.synthetic_pipelines import dit, gaussian_denoiser, pooled

from flowscope.errors import InvalidInputError
from flowscope.instruments.sync.commitment.outcomes import Outcomes, intervention_steps, strip
from flowscope.instruments.sync.config import SyncConfig
from flowscope.instruments.sync.internal_gap.mode_reading import ModeReading, kept_steps
from flowscope.instruments.sync.pair_sampling import pair_sampler, pair_seeds
from flowscope.levers import couple
from flowscope.models.diffusion.denoiser import denoiser_of
from flowscope.models.loading import load
from flowscope.records import Manifest, Run, Shards, Unavailable

SPREAD = 0.2
SMALL = {
    "pairs": 4, "steps": 6, "interventions": 6, "couplings": (0.5, 1.0), "labels": (1,),
    "finals": 0,
}  # fmt: skip


def config_of(**changed):
    return SyncConfig.model_validate({**SMALL, **changed})


def run_in(folder):
    absent = Unavailable("synthetic")
    manifest = Manifest(
        config_given={}, config_resolved={}, seeds={}, versions={}, device="cpu",
        weight_hashes=absent, data_hashes=absent, wall_time=absent, commit=absent,
        created_at="2026-01-01T00:00:00+00:00",
    )  # fmt: skip
    return Run.open(folder) if folder.exists() else Run.create(folder, manifest)


class Count:
    """Told every reverse step; breaks off when it has seen enough."""

    def __init__(self, most=math.inf):
        self.steps, self.most = 0, most

    def __call__(self, more):
        self.steps += more
        if self.steps > self.most:
            raise KeyboardInterrupt


def denoiser_with_passes():
    model = dit()
    denoiser = denoiser_of(model, load(model), scheduler=diffusers.DDPMScheduler())
    passes = []
    model.register_forward_hook(lambda *_: passes.append(1))
    return denoiser, passes


def stage_of(denoiser, folder, *, encoder=pooled, most=math.inf, fingerprint="f" * 64, **changed):
    count = Count(most)
    config = config_of(**changed)
    shards = Shards(run=run_in(folder), fingerprint=fingerprint)
    return Outcomes(denoiser, encoder, config, shards, count), count


def assert_same(first, second):
    assert len(first) == len(second)
    for one, other in zip(first, second, strict=True):
        assert (one.label, one.g, one.control) == (other.label, other.g, other.control)
        assert one.measures.keys() == other.measures.keys()
        for name, values in one.measures.items():
            np.testing.assert_array_equal(values, other.measures[name])
        np.testing.assert_array_equal(one.images, other.images)


def test_interventions_are_spread_from_the_noise_to_the_end():
    assert intervention_steps(config_of(steps=16, interventions=7)) == [0, 3, 5, 8, 11, 13, 16]
    assert intervention_steps(config_of(steps=6, interventions=7)) == list(range(7))


def test_seeds_are_those_of_the_class_and_do_not_move_with_the_number_of_pairs():
    few, many = (pair_seeds(config_of(pairs=n), 1) for n in (4, 9))
    assert many[:4] == few
    assert len({*many, *pair_seeds(config_of(pairs=9), 2)}) == 18
    assert few != pair_seeds(config_of(seed=1), 1)
    assert all(0 <= seed < 2**63 for seed in many)


def test_agreement_under_shared_noise_is_a_correlation_with_a_closed_form(tmp_path):
    r"""Data $N(0, s^2)$, exact predictions, independent starts, noise shared up to step $k$.

    Covariances follow $c' = a_t^2c + \sigma_t^2$ while noise is shared and $a_t^2c$ after, and
    $1 - \mathbb E\Vert x^A-x^B\Vert^2/2v$ is the correlation, at both scales. Without coupling and
    with separate noise it is 0 whatever the step.
    """
    steps, pairs = 30, 400
    denoiser = gaussian_denoiser(SPREAD)
    stage, _ = stage_of(
        denoiser, tmp_path / "run", encoder=lambda x: x.flatten(1), steps=steps, pairs=pairs,
        couplings=(0.0,), labels=(0,), batch=64, interventions=7,
    )  # fmt: skip
    free, control = stage.curves()
    assert (free.g, free.control, control.g, control.control) == (0.0, False, 0.0, True)
    levels = [*denoiser.clock(steps).levels, 1.0]
    law, variance = [], 1.0
    factors = []
    for now, then in itertools.pairwise(levels):
        jump = (1 - then) / (1 - now) * (1 - now / then)
        total = now * SPREAD**2 + 1 - now
        kept = math.sqrt(then * now) * SPREAD**2 + math.sqrt((1 - then - jump) * (1 - now))
        factors.append(((kept / total) ** 2, jump))
        variance = factors[-1][0] * variance + jump
    for cut in stage.steps:
        covariance = 0.0
        for step, (kept, jump) in enumerate(factors):
            covariance = kept * covariance + (jump if step < cut else 0.0)
        law.append(covariance / variance)
    assert law[0] == 0
    assert law[-1] > 0.9
    for measure, size in (("coarse", 1), ("fine", 15), ("feature", 16)):
        found = control.measures[measure].mean(0)
        np.testing.assert_allclose(found, law, atol=4 * math.sqrt(2 / (pairs * size)) + 0.02)
        flat = free.measures[measure]
        np.testing.assert_array_equal(flat, np.repeat(flat[:, :1], len(law), 1))
        assert abs(flat.mean()) < 4 * math.sqrt(2 / (pairs * size)) + 0.01


def test_one_shard_serves_every_coupling_that_was_never_on(tmp_path):
    denoiser, passes = denoiser_with_passes()
    stage, count = stage_of(denoiser, tmp_path / "run", batch=2)
    curves = stage.curves()
    assert [(c.g, c.control) for c in curves] == [(0.5, False), (1.0, False), (0.0, True)]
    for curve in curves:
        for name, values in curve.measures.items():
            np.testing.assert_array_equal(values[:, 0], curves[0].measures[name][:, 0])
    names = [key.name for key in stage._shards.run.shards()]
    assert sum("untied" in name for name in names) == 2  # one for each of two chunks
    after = sum(6 - step for step in stage.steps if step)
    assert len(passes) == count.steps == stage.passes() == 2 * (6 + 3 * (6 + after))


def test_the_last_intervention_is_the_coupled_walk_itself(tmp_path):
    denoiser, _ = denoiser_with_passes()
    stage, _ = stage_of(denoiser, tmp_path / "run")
    curves = stage.curves()
    sampler, noise = pair_sampler(denoiser, config_of(), 1, eta=1.0)
    for curve, tied in zip(curves, ({"g": 0.5}, {"g": 1.0}, {"shared": True}), strict=True):
        states = {0: noise.initial(1.0)} | dict(sampler.walk(noise.initial(1.0), noise, **tied))
        first, second = states[6].clamp(-1, 1).chunk(2)
        np.testing.assert_array_equal(curve.images[-1, 0], first[0].numpy())
        np.testing.assert_array_equal(curve.images[-1, 1], second[0].numpy())
        # and in the middle it is coupled first and let go then
        at = stage.steps[3]
        x = dict(sampler.walk(states[at], noise, first=at))[6]
        np.testing.assert_array_equal(curve.images[3, 0], x[0].clamp(-1, 1).numpy())
        features = [pooled(part) for part in x.clamp(-1, 1).chunk(2)]
        expected = torch.cosine_similarity(*features)
        np.testing.assert_allclose(curve.measures["feature"][:, 3], expected, rtol=1e-5)


def test_equal_replicas_agree_wholly(tmp_path):
    denoiser, _ = denoiser_with_passes()
    stage, _ = stage_of(denoiser, tmp_path / "run", sigma=0.0)
    control = stage.curves()[-1]
    for values in control.measures.values():
        np.testing.assert_allclose(values[:, -1], 1.0, atol=1e-12)
        assert (values[:, 0] < 0.999).any()


@pytest.mark.parametrize(("pairs", "batch"), [(5, 4), (5, 1), (4, 2)])
def test_batches_change_no_image(tmp_path, pairs, batch):
    """Pairs that are left over, one at the end, are read too; only the baseline may move."""
    denoiser, _ = denoiser_with_passes()
    whole, _ = stage_of(denoiser, tmp_path / "whole", pairs=pairs)
    parts, _ = stage_of(denoiser, tmp_path / "parts", pairs=pairs, batch=batch)
    for one, other in zip(whole.curves(), parts.curves(), strict=True):
        expected, found = one.measures["feature"], other.measures["feature"]
        assert found.shape == (pairs, 6)
        np.testing.assert_allclose(found, expected, atol=1e-4)
        assert np.isfinite(other.measures["fine"]).all()


@pytest.mark.parametrize("most", [0, 5, 20, 50])
def test_an_interrupted_sweep_is_taken_up_where_it_was(tmp_path, most):
    denoiser, passes = denoiser_with_passes()
    whole, _ = stage_of(denoiser, tmp_path / "whole")
    expected = whole.curves()
    total = len(passes)
    passes.clear()
    broken, count = stage_of(denoiser, tmp_path / "run", most=most)
    with pytest.raises(KeyboardInterrupt):
        broken.curves()
    assert len(passes) == count.steps == most + 1
    done = len(broken._shards.run.shards())
    passes.clear()
    again, _ = stage_of(denoiser, tmp_path / "run")
    assert_same(again.curves(), expected)
    assert total - most <= len(passes) < total - most + 6  # one walk is lost, no more
    assert done or most < 6
    passes.clear()
    assert_same(stage_of(denoiser, tmp_path / "run")[0].curves(), expected)
    assert not passes


def test_an_interrupt_leaves_the_model_uncoupled(tmp_path):
    """Also while the traceback is held, as a notebook holds it."""
    denoiser, _ = denoiser_with_passes()
    given = (torch.randn(2, 1, 8, 8), 500, torch.tensor([1, 1]))
    with torch.no_grad():
        before = denoiser.noise(*given)
    stage, _ = stage_of(denoiser, tmp_path / "run", most=8)  # within the first coupled walk
    with pytest.raises(KeyboardInterrupt) as held:
        stage.curves()
    with torch.no_grad():
        assert torch.equal(denoiser.noise(*given), before)
    assert held.value is not None


def test_a_finer_sweep_takes_up_what_is_finished(tmp_path):
    denoiser, passes = denoiser_with_passes()
    stage_of(denoiser, tmp_path / "run")[0].curves()
    passes.clear()
    finer, _ = stage_of(denoiser, tmp_path / "run", couplings=(0.25, 0.5, 1.0))
    curves = finer.curves()
    after = sum(6 - step for step in finer.steps if step)
    assert len(passes) == 6 + after
    fresh, _ = stage_of(denoiser, tmp_path / "fresh", couplings=(0.25, 0.5, 1.0))
    assert_same(curves, fresh.curves())


def test_shards_of_another_fingerprint_are_not_used(tmp_path):
    denoiser, passes = denoiser_with_passes()
    stage_of(denoiser, tmp_path / "run")[0].curves()
    total = len(passes)
    passes.clear()
    stage_of(denoiser, tmp_path / "run", fingerprint="e" * 64)[0].curves()
    assert len(passes) == total


def test_without_an_encoder_the_scales_are_left(tmp_path):
    denoiser, _ = denoiser_with_passes()
    stage, _ = stage_of(denoiser, tmp_path / "run", encoder=Unavailable("none fits"))
    assert set(stage.curves()[0].measures) == {"coarse", "fine"}


def test_a_low_resolution_that_is_not_low_is_refused(tmp_path):
    denoiser, _ = denoiser_with_passes()
    with pytest.raises(InvalidInputError, match="smaller than the images, 8×8; got 8"):
        stage_of(denoiser, tmp_path / "run", coarse=8)[0].curves()


def test_a_model_that_makes_one_image_only_is_refused(tmp_path):
    denoiser, _ = denoiser_with_passes()
    with torch.no_grad():  # every pixel is driven beyond 1, where all are clamped
        denoiser.loaded.model.proj_out_2.bias.sub_(50)
    with pytest.raises(InvalidInputError, match=r"Unrelated images of class 1 do not differ"):
        stage_of(denoiser, tmp_path / "run")[0].curves()


def test_the_strip_shows_the_first_pair_of_the_first_class(tmp_path):
    denoiser, _ = denoiser_with_passes()
    stage, _ = stage_of(denoiser, tmp_path / "run", labels=(2, 0))
    curves = stage.curves()
    assert [c.label for c in curves] == [2, 2, 2, 0, 0, 0]
    shown = strip(curves)
    assert shown["images"].shape == (3, 6, 2, 1, 8, 8)
    assert shown["g"].tolist() == [0.5, 1.0, 0.0]
    assert shown["control"].tolist() == [False, False, True]
    assert shown["steps"].tolist() == stage.steps
    np.testing.assert_array_equal(shown["images"][1], curves[1].images)
    assert np.abs(shown["images"]).max() <= 1


def test_kept_steps_are_spread_and_hold_those_asked_for():
    config = config_of(steps=10, kept=4)
    assert kept_steps(config) == (0, 3, 6, 9)
    assert kept_steps(config, [5, 0, 10]) == (0, 1, 3, 5, 6, 9)
    assert kept_steps(config_of(kept=50)) == tuple(range(6))


def modes_of(denoiser, folder, **changed):
    config = config_of(pairs=4, **changed)
    shards = Shards(run=run_in(folder), fingerprint="f" * 64)
    return ModeReading(denoiser, config, shards, lambda more: None)


def test_modes_are_read_once_for_each_coupling_and_list_of_steps(tmp_path):
    denoiser, passes = denoiser_with_passes()
    stage = modes_of(denoiser, tmp_path / "run", steps=60, kept=40)
    first = stage.read(0.5, [57])
    assert len(passes) == 61  # one for the reference of the step that was asked for
    assert first["clock"].tolist() == [57]
    assert 57 in first["kept"]
    assert 58 not in first["kept"]
    again = stage.read(0.5, [57])
    assert len(passes) == 61
    for name, values in first.items():
        np.testing.assert_array_equal(values, again[name])
    assert 58 in stage.read(0.5, [58])["kept"]  # a long list differs at its end only
    assert len(passes) == 122


def test_modes_are_those_of_coupled_replicas_without_noise(tmp_path):
    denoiser, _ = denoiser_with_passes()
    config = config_of()
    found = modes_of(denoiser, tmp_path / "run").read(0.5, [3])
    blocks, states = denoiser.loaded.model.transformer_blocks, []
    hook = blocks[1].register_forward_hook(lambda _, a, y: states.append(y))
    sampler, noise = pair_sampler(denoiser, config, 1, eta=0.0)
    for _ in sampler.walk(noise.initial(config.mode_sigma), noise, g=0.5):
        pass
    hook.remove()
    rows = [((h[:4] - h[4:]) / 2**0.5).flatten(1).double() for h in (states[0], states[3])]
    both = torch.cat(rows)
    place = found["kept"].tolist().index(3)
    np.testing.assert_allclose(found["gram"][1, place], both @ both.T, rtol=1e-4, atol=1e-6)


def test_the_reference_is_the_first_difference_at_the_time_of_the_step(tmp_path):
    """Erratum E99: blocks are modulated by the time, so V_0 must be read at the same one."""
    denoiser, _ = denoiser_with_passes()
    config = config_of()
    found = modes_of(denoiser, tmp_path / "run").read(0.5, [3])
    sampler, noise = pair_sampler(denoiser, config, 1, eta=0.0)
    start, states = noise.initial(config.mode_sigma), []
    blocks = denoiser.loaded.model.transformer_blocks
    hook = blocks[0].register_forward_hook(lambda _, a, y: states.append(y))
    walked = dict(sampler.walk(start, noise, g=0.5))
    at_three = states[3]
    states.clear()
    with torch.no_grad(), couple(denoiser.loaded.model, 0.5):
        denoiser.noise(start, sampler.clock.times[3], sampler.labels)
    hook.remove()
    rows = [((h[:4] - h[4:]) / 2**0.5).flatten(1).double() for h in (states[0], at_three)]
    stacked = torch.cat(rows)
    np.testing.assert_allclose(found["clock_gram"][0, 0], (stacked @ stacked.T).numpy(), rtol=1e-4)
    assert set(walked) == set(range(1, config.steps + 1))
    other = found["gram"][0, found["kept"].tolist().index(3)]
    first, read = found["clock_gram"][0, 0][:4, :4], other[:4, :4]
    assert np.abs(first - read).max() > 1e-2 * read.max()


def test_branches_that_walk_in_one_batch_end_where_each_would(tmp_path):
    denoiser, _ = denoiser_with_passes()
    config = config_of()
    sampler, noise = pair_sampler(denoiser, config, 1, eta=1.0)
    states = {0: noise.initial(1.0)}
    states |= dict(sampler.walk(states[0], noise, g=0.5))
    told = []
    ended = sampler.finished(states, noise, advance=told.append)
    assert set(ended) == set(states)
    assert sum(told) == sum(config.steps - step for step in states)
    for step, start in states.items():
        *_, (_, alone) = [(step, start), *sampler.walk(start, noise, first=step)]
        torch.testing.assert_close(ended[step], alone, rtol=1e-4, atol=1e-4)


def test_damaged_outcome_is_made_again(tmp_path):
    denoiser, _ = denoiser_with_passes()
    expected = stage_of(denoiser, tmp_path / "run")[0].curves()
    shard = next((tmp_path / "run" / "shards").glob("outcome-1-g1-*.safetensors"))
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert_same(stage_of(denoiser, tmp_path / "run")[0].curves(), expected)
    assert shard.read_bytes() == whole
