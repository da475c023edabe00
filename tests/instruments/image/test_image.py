"""`flowscope.image` as a user calls it: tables, JSON, resuming, and a sentence for bad input."""

import json

import diffusers
import pytest
import torch
from tests.instruments.tiny import shown
from tests.models.synthetic_pipelines import (
    Gaussian,
    dit,
    gaussian_denoiser,
    pixel_folder,
    saved,
    unet,
    vae,
)

import flowscope as fs
from flowscope.errors import InvalidInputError
from flowscope.flows.sampling.variance_preserving import MergedNoise, unit_clock
from flowscope.instruments.image.models import LearnedModel, MixtureModel
from flowscope.instruments.image.sampling import HalvedNoise, Track, marched, track_times
from flowscope.lab.study import reproduce
from flowscope.models.diffusion.denoiser import denoiser_of
from flowscope.models.diffusion.marks import denoiser_marks
from flowscope.models.images.readers import reader_mark, reader_of
from flowscope.models.loading import load
from flowscope.records import Unavailable

SMALL = {
    "images": 24, "steps": 6, "family_images": 16, "doubling": (2, 4), "lams": (0.0, 0.5, 1.0),
    "bins": 8, "rank": 2, "rotation_times": 1, "rotation_degree": 1, "information_images": 9,
    "uturn_images": 8, "uturn_times": 2, "resamples": 40, "draws": 39, "batch": 12,
}  # fmt: skip
TABLES = {
    "parity", "step_budget", "weak_error", "weak_error_slope", "smoothness", "paths", "family",
    "rotation",
}  # fmt: skip


def bright(images):
    """A reader: which third of the range the mean lies in."""
    return ((images.mean((1, 2, 3)) + 1) * 1.5).long().clamp(0, 2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return pixel_folder(tmp_path_factory.mktemp("pipeline"), names=["cat", "dog", "owl"])


@pytest.fixture(scope="module")
def found(folder, tmp_path_factory):
    return fs.image(folder, reader=bright, out=tmp_path_factory.mktemp("image") / "run", **SMALL)


def test_a_conditional_model_has_every_table(found):
    assert set(found.run.tables()) == TABLES | {"information", "uturn"}
    assert len(found.parity) == SMALL["steps"]
    assert found.parity["time"].iloc[-1] == 0
    assert found.parity["log_snr"].is_monotonic_increasing
    assert [v.name for v in found.verdicts] == ["I1", "I2", "I3"]
    assert set(found.family["lam"]) == {0.0, 0.5, 1.0}
    assert set(found.family["steps"]) == {2, 4, 8}
    assert found.family["accuracy"].between(0, 1).all()
    strip = found.run.read_arrays("uturn_strip")
    assert strip["images"].shape[:2] == (3, 8)
    assert found.run.read_arrays("samples")["images"].shape == (2, 8, 1, 8, 8)


def test_the_document_keeps_the_contract(found):
    document = json.loads(json.dumps(found.to_json(), allow_nan=False))
    row = document["parity"][0]
    assert {"time", "tv", "ks", "null"} <= set(row)
    assert {"tv_null", "tv_null_high", "ks_null"} <= set(row["null"])
    assert {"slope", "interval"} <= set(document["weak_error"])
    assert len(document["weak_error"]["all"]) == 6
    assert {"time", "normalised", "interval"} <= set(document["rotation"][0])
    assert {"time", "same_class", "interval"} <= set(document["uturn"][0])
    assert document["measured"]["classes"] == ["cat", "dog", "owl"]
    told = {v["name"]: v["interval"] for v in document["verdicts"] if v["decision"] != "abstains"}
    assert all(interval is not None for interval in told.values())


def test_the_terminal_shows_what_was_read(tiny_run):
    document = tiny_run("image").document
    words = " ".join(shown("image", document).split())
    assert "noised to" in words
    assert "an excess of" not in words  # the samples of untrained weights lie beyond the bins
    seen = "With 16 images this run could have seen an excess of 0.1."
    assert seen in " ".join(shown("image", document | {"could_have_seen": seen}).split())


def test_tracks_start_from_the_same_noise():
    """After a short first step both are still nearly where they started."""
    model = MixtureModel()
    start = model.start(50, torch.Generator().manual_seed(0))
    tracks = [Track(lam=lam, steps=1600) for lam in (0.0, 1.0)]
    walk = marched(model, tracks, start, None, [torch.Generator().manual_seed(1)])
    first, second = (next(walk) for _ in range(2))
    for event in (first, second):
        torch.testing.assert_close(event.before, start)
        assert (event.after - start).square().mean() < 0.05


def test_an_unconditional_unet_is_read_without_classes(tmp_path):
    folder = saved(tmp_path / "p", model=unet(), scheduler=diffusers.DDPMScheduler())
    found = fs.image(folder, out=tmp_path / "run", **SMALL)
    assert set(found.run.tables()) == TABLES | {"uturn"}
    assert isinstance(found.information, Unavailable)
    assert "takes no class" in found.information.reason
    assert found.uturn["same_class"].isna().all()
    assert found.to_json()["uturn"][0]["same_class"] is None
    assert "takes no class" in " ".join(shown("image", found.to_json()).split())
    assert found.uturn["correlation"].notna().all()
    assert found.family["accuracy"].isna().all()
    assert found.report().is_file()
    for verdict in found.verdicts:
        assert verdict.outcome in ("uninformative", "abstains")
        assert "nan" not in verdict.because
    assert [v.outcome for v in found.judge()] == [v.outcome for v in found.verdicts]


def verdicts_with(schedule, tmp_path, **change):
    found = fs.image(unet(), scheduler=schedule, out=tmp_path / "run", **SMALL | change)
    return {verdict.name: verdict for verdict in found.verdicts}


def test_a_schedule_too_short_for_twice_the_steps_gets_a_sentence(tmp_path):
    schedule = diffusers.DDPMScheduler(num_train_timesteps=10, beta_start=0.05, beta_end=0.95)
    found = verdicts_with(schedule, tmp_path)["I1"]
    assert found.outcome == "abstains"
    assert "there is no run with 12 steps to tell the error of 6 steps" in found.because


def test_a_schedule_of_noise_alone_gets_a_sentence(tmp_path):
    """Log snr from −6.3 to −5.3."""
    schedule = diffusers.DDPMScheduler(trained_betas=[0.995, *[0.001] * 999])
    found = verdicts_with(schedule, tmp_path)
    assert "no step of this schedule ends at a log snr of -5 or more" in found["I1"].because
    assert "no window of steps has a log snr of -3 or more" in found["I3"].because
    for name in ("I1", "I3"):
        assert found[name].outcome == "abstains"
        assert "no verdict, because" in found[name].because


def test_another_reader_or_configuration_begins_anew(folder):
    """Shards of one model or reader are not another's, also where noise is read alike."""

    def other(images):
        return torch.where(images.flatten(1).std(1) < 0.1, 0, bright(images))

    shape, device = (1, 8, 8), torch.device("cpu")
    noise = torch.randn(8, *shape, generator=torch.Generator().manual_seed(0)).clamp(-1, 1)
    assert torch.equal(other(noise), bright(noise))
    assert reader_mark(other, shape, device) != reader_mark(bright, shape, device)
    assert reader_mark(bright, shape, device) == reader_mark(bright, shape, device)
    loaded = load(folder)
    marks = denoiser_marks(denoiser_of(folder, loaded))
    loaded.model.register_to_config(norm_eps=0.5)
    assert denoiser_marks(denoiser_of(folder, loaded))["config"] != marks["config"]


def test_guided_samplers_are_not_judged_by_what_holds_for_scores(folder, tmp_path):
    found = fs.image(folder, out=tmp_path / "run", guidance=2.0, **SMALL)
    told = {v.name: v.decision for v in found.verdicts}
    assert (told["I1"], told["I3"]) == ("abstains", "abstains")
    assert "not the score of any distribution" in found.verdicts[0].because
    assert "guidance" in found.information.reason


def test_a_strip_of_an_earlier_run_does_not_stay(folder, tmp_path):
    fs.image(folder, out=tmp_path / "run", **SMALL)
    assert (tmp_path / "run" / "arrays" / "uturn_strip.safetensors").is_file()
    fs.image(folder, out=tmp_path / "run", only="parity", **SMALL)
    assert not (tmp_path / "run" / "arrays" / "uturn_strip.safetensors").is_file()


def test_untrained_weights_are_warned_of(found):
    assert "correlation" in found.warning
    assert found.to_json()["warning"] == found.warning


def test_latents_are_decoded_for_what_is_shown(tmp_path):
    folder = saved(
        tmp_path / "p", model=dit(channels=4), scheduler=diffusers.DDIMScheduler(), decoder=vae()
    )
    found = fs.image(folder, out=tmp_path / "run", **SMALL)
    assert found.run.read_arrays("samples")["images"].shape == (2, 8, 3, 16, 16)
    channels = set(found.parity["channel"])
    assert channels == {"all", "0", "1", "2", "3"}
    assert found.to_json()["measured"]["space"] == "latents"


@pytest.mark.parametrize("kind", ["epsilon", "v_prediction", "sample"])
def test_every_prediction_gives_one_clean_part_and_one_noise(kind):
    model = LearnedModel(denoiser=gaussian_denoiser(0.5, kind))
    x = torch.randn(3, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    level = model.levels[400]
    found = model.predicted(x, 400, None)
    clean = level**0.5 * 0.25 / (level * 0.25 + 1 - level) * x
    torch.testing.assert_close(found.clean, clean, rtol=1e-4, atol=1e-5)
    joined = level**0.5 * found.clean + (1 - level) ** 0.5 * found.noise
    torch.testing.assert_close(joined, x, rtol=1e-4, atol=1e-5)


def test_a_model_that_predicts_noise_under_another_name_is_refused(tmp_path):
    schedule = diffusers.DDIMScheduler(prediction_type="v_prediction")
    with pytest.raises(InvalidInputError, match="it predicts 'epsilon'"):
        fs.image(Gaussian(0.5), scheduler=schedule, out=tmp_path / "run", **SMALL | {"bins": 8})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"lams": (1.5,)}, "lams must lie in"),
        ({"doubling": (4, 6)}, "each is twice the one before"),
        ({"bins": 512}, "512 bins need at least 5120 values"),
        ({"steps": 2000}, "1000 times"),
        ({"images": 4}, "images"),
        ({"integrator": "heun"}, "integrator"),
        ({"doubling": (0, 0)}, "each is twice the one before"),
        ({"dtype": "float8"}, "dtype must be one of"),
    ],
)
def test_settings_that_do_not_fit_get_a_sentence(folder, tmp_path, change, words):
    with pytest.raises(InvalidInputError, match=words):
        fs.image(folder, reader=bright, out=tmp_path / "run", **SMALL | change)


def test_a_schedule_that_is_not_variance_preserving_is_refused(tmp_path):
    schedule = diffusers.FlowMatchEulerDiscreteScheduler()
    with pytest.raises(InvalidInputError, match="not variance preserving"):
        fs.image(unet(), scheduler=schedule, out=tmp_path / "run", **SMALL)


def test_nan_is_told_with_its_step(tmp_path):
    model = unet()
    with torch.no_grad():
        model.conv_out.weight.fill_(1e30)
        model.conv_out.weight[0, 0, 0, 0] = 3e38
    with pytest.raises(InvalidInputError, match=r"NaN or infinite after step \d+ of"):
        fs.image(model, scheduler=diffusers.DDPMScheduler(), out=tmp_path / "run", **SMALL)


def test_a_reader_that_is_none_is_refused(folder, tmp_path):
    with pytest.raises(InvalidInputError, match="one integer per image"):
        fs.image(folder, reader=lambda x: x.mean((1, 2, 3)), out=tmp_path / "run", **SMALL)
    chosen, _ = reader_of(None, classes=("a", "b"), shape=(1, 8, 8), device=torch.device("cpu"))
    assert isinstance(chosen, Unavailable)


def test_tracks_share_their_brownian_path():
    """Two numbers of steps of one member end nearer to each other than two noises do."""
    model = MixtureModel()
    start = model.start(500, torch.Generator().manual_seed(0))
    tracks = [Track(lam=1.0, steps=s) for s in (50, 100)] + [Track(lam=1.0, steps=100, stream=1)]
    noise = [torch.Generator().manual_seed(k) for k in (1, 2)]
    ends = {}
    for event in marched(model, tracks, start, None, noise):
        ends[event.track] = event.after
    near, far = (ends[i] - ends[1] for i in (0, 2))
    assert near.square().mean() < 0.2 * far.square().mean()
    with pytest.raises(InvalidInputError, match="must divide the largest"):
        next(marched(model, [Track(lam=0.0, steps=s) for s in (3, 8)], start, None, noise))


def test_the_study_judges_every_claim(folder, tmp_path):
    told = [f"image.{k}={json.dumps(v)}" for k, v in SMALL.items()]
    done = reproduce("track_i", str(folder), overrides=told, out=str(tmp_path))
    assert done.source == "000"
    assert set(done.claims["agrees"]) <= {"yes", "no", "cannot be told", "not measured"}
    assert done.claims["item"].tolist()[:3] == ["parity", "one family", "first order"]
    assert done.to_json()["measured"]["images"] == 24


def test_halved_noise_merges_to_that_of_the_coarse_run():
    """The fine SDE stays near the coarse one, which draws what it would draw by itself."""
    model = MixtureModel()
    start = model.start(500, torch.Generator().manual_seed(0))

    def seeded(k):
        return torch.Generator().manual_seed(k)

    def final(tracks, noise):
        return {e.track: e.after for e in marched(model, tracks, start, None, noise)}

    coarse = final([Track(lam=1.0, steps=50)], [seeded(1)])[0]
    near = final([Track(lam=1.0, steps=100)], [HalvedNoise(seeded(1), seeded(2))])[0]
    far = final([Track(lam=1.0, steps=100)], [seeded(3)])[0]
    assert (near - coarse).square().mean() < 0.2 * (far - coarse).square().mean()
    clock = [unit_clock(model.levels[time]) for time in track_times(model, 100)]
    halves, merged = HalvedNoise(seeded(1), seeded(2)), MergedNoise(clock)
    parts = [halves.drawn(start, clock, place) for place in (0, 1)]
    for place, part in enumerate(parts):
        merged.add(place, part)
    expected = torch.randn(start.shape, generator=seeded(1), dtype=start.dtype)
    torch.testing.assert_close(merged.taken(), expected)
    pair = torch.stack(parts).flatten(1)
    assert abs(float(torch.corrcoef(pair)[0, 1])) < 0.1
    assert float(pair.var(1).sub(1).abs().max()) < 0.1
