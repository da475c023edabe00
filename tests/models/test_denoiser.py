"""A diffusion model with its schedule: what is read from a folder, what is refused, the steps."""

import json

import diffusers
import pytest
import torch
from tests import networks as models
from tests.models.synthetic_pipelines import (
    CLASSES,
    SIDE,
    dit,
    gaussian_denoiser,
    pixel_folder,
    saved,
    unet,
    vae,
)

from flowscope.errors import InvalidInputError, LoadError, UnsupportedModelError
from flowscope.models.diffusion.denoiser import denoiser_of
from flowscope.models.loading import load
from flowscope.nets import bundled_path
from flowscope.records import Unavailable

SAME_LEVELS = [
    "DDPMScheduler",
    "DDIMScheduler",
    "PNDMScheduler",
    "DPMSolverMultistepScheduler",
    "EulerDiscreteScheduler",
    "HeunDiscreteScheduler",
    "LCMScheduler",
]


def of(source, **options):
    return denoiser_of(source, load(source), **options)


def levels_of(denoiser):
    return diffusers.DDIMScheduler.from_config(denoiser.schedule).alphas_cumprod


def test_the_schedule_is_that_of_the_folder(tmp_path):
    own = diffusers.DDPMScheduler(beta_schedule="squaredcos_cap_v2", num_train_timesteps=400)
    denoiser = of(pixel_folder(tmp_path, scheduler=own))
    torch.testing.assert_close(levels_of(denoiser), own.alphas_cumprod, rtol=0, atol=0)
    clock = denoiser.clock(20)
    assert len(clock) == 20
    assert clock.times == list(range(380, -1, -20))
    assert clock.levels == [float(own.alphas_cumprod[t]) for t in clock.times]


@pytest.mark.parametrize("name", SAME_LEVELS)
@pytest.mark.parametrize("default", [True, False])
def test_every_variance_preserving_scheduler_keeps_its_levels(name, default, tmp_path):
    """Classes have different defaults; what counts are the numbers of the one in the folder."""
    given = {} if default else {"beta_start": 1e-3, "beta_end": 0.03, "beta_schedule": "linear"}
    own = getattr(diffusers, name)(**given)
    for denoiser in (of(pixel_folder(tmp_path, scheduler=own)), of(dit(), scheduler=own)):
        torch.testing.assert_close(levels_of(denoiser), own.alphas_cumprod, rtol=0, atol=0)
        assert not denoiser.schedule["clip_sample"]


def test_levels_that_have_no_name_in_ddim_are_carried_as_numbers():
    own = diffusers.DDPMScheduler(beta_schedule="sigmoid", prediction_type="v_prediction")
    denoiser = of(dit(), scheduler=own)
    torch.testing.assert_close(levels_of(denoiser), own.alphas_cumprod, rtol=0, atol=0)
    assert denoiser.schedule["prediction_type"] == "v_prediction"


def test_a_scheduler_may_be_given_as_a_folder(tmp_path):
    own = diffusers.EulerDiscreteScheduler(beta_end=0.03)
    own.save_pretrained(tmp_path)
    denoiser = of(dit(), scheduler=tmp_path)
    torch.testing.assert_close(levels_of(denoiser), own.alphas_cumprod, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("scheduler", "words"),
    [
        (diffusers.FlowMatchEulerDiscreteScheduler(), "not variance preserving.*Flow matching"),
        (diffusers.DDPMScheduler(beta_end=0.001), "keeps 58% of the signal"),
        (diffusers.DDPMScheduler(prediction_type="noise"), "predicts 'noise'.*'v_prediction'"),
    ],
)
def test_a_schedule_that_does_not_match_is_refused(scheduler, words):
    with pytest.raises(InvalidInputError, match=words):
        of(dit(), scheduler=scheduler)


def test_a_learned_variance_has_no_prediction_of_samples():
    own = diffusers.DDPMScheduler(prediction_type="sample")
    assert of(dit(), scheduler=own).schedule["prediction_type"] == "sample"
    with pytest.raises(InvalidInputError, match="without a learned variance"):
        of(dit(1, 2), scheduler=own)


def test_a_model_without_a_schedule_asks_for_one(tmp_path):
    with pytest.raises(InvalidInputError, match=r"in memory and has no schedule\. Give scheduler="):
        of(dit())
    dit().save_pretrained(tmp_path / "alone")
    with pytest.raises(InvalidInputError, match="without a pipeline around it"):
        of(tmp_path / "alone")
    bare = saved(tmp_path / "bare", model=dit())
    index = json.loads((bare / "model_index.json").read_text())
    (bare / "model_index.json").write_text(json.dumps({**index, "scheduler": [None, None]}))
    with pytest.raises(InvalidInputError, match="has no scheduler"):
        of(bare)
    with pytest.raises(LoadError, match="holds no scheduler of diffusers"):
        of(dit(), scheduler=tmp_path)


@pytest.mark.parametrize("name", ["sd3", "pixart"])
def test_text_conditioned_models_are_sent_to_couple(name):
    model, _ = models.READABLE[name]()
    with pytest.raises(UnsupportedModelError, match=r"conditioned on text.*flowscope\.couple"):
        of(model, scheduler=diffusers.DDPMScheduler())


def test_what_is_no_denoiser_is_refused():
    model, _ = models.READABLE["gpt2"]()
    with pytest.raises(UnsupportedModelError, match="GPT2LMHeadModel is not a denoiser of images"):
        of(model, scheduler=diffusers.DDPMScheduler())


def test_channels_that_are_neither_noise_nor_variance_are_refused():
    with pytest.raises(InvalidInputError, match="takes 1 channels and gives 3"):
        of(dit(1, 3), scheduler=diffusers.DDPMScheduler())


def test_classes_come_from_the_folder_or_are_numbered(tmp_path):
    folder = pixel_folder(tmp_path, names=["cat", "dog", "owl"])
    assert of(folder).classes == ("cat", "dog", "owl")
    assert of(folder, classes=["a", "b", "c"]).classes == ("a", "b", "c")
    own = diffusers.DDPMScheduler()
    assert of(dit(), scheduler=own).classes == tuple(f"class {i}" for i in range(CLASSES))
    assert of(unet(), scheduler=own).classes == ()
    assert of(unet(num_class_embeds=4), scheduler=own).classes[-1] == "class 3"
    with pytest.raises(InvalidInputError, match="takes 3 class labels; got the names of 2"):
        of(dit(), scheduler=own, classes=["a", "b"])
    with pytest.raises(UnsupportedModelError, match="class_embed_type 'timestep'"):
        of(unet(class_embed_type="timestep"), scheduler=own)


def test_a_labelled_unet_is_told_its_label():
    denoiser = of(unet(num_class_embeds=4), scheduler=diffusers.DDPMScheduler())
    x, labels = torch.randn(2, 1, SIDE, SIDE), torch.tensor([0, 3])
    model = denoiser.loaded.model
    with torch.no_grad():
        direct = model(x, torch.tensor([400, 400]), class_labels=labels).sample
        other = denoiser.noise(x, 400, torch.tensor([1, 3]))
        torch.testing.assert_close(denoiser.noise(x, 400, labels), direct, rtol=0, atol=0)
    assert not torch.equal(other[0], direct[0])
    with pytest.raises(InvalidInputError, match="a label for no class"):
        denoiser.noise(x, 400, labels, 2.0)


@torch.no_grad()
def test_guidance_mixes_the_labelled_and_the_free_prediction():
    denoiser = of(dit(), scheduler=diffusers.DDPMScheduler())
    model = denoiser.loaded.model
    x, labels = torch.randn(4, 1, SIDE, SIDE), torch.tensor([0, 1, 2, 0])
    times = torch.full((4,), 300)
    asked = model(x, timestep=times, class_labels=labels).sample
    free = model(x, timestep=times, class_labels=torch.full_like(labels, CLASSES)).sample
    assert not torch.allclose(asked, free, atol=1e-3)
    assert torch.equal(denoiser.noise(x, 300, labels), asked)
    torch.testing.assert_close(denoiser.noise(x, 300, labels, 3.0), 3 * asked - 2 * free)
    torch.testing.assert_close(denoiser.noise(x, 300, labels, 0.0), free)


@torch.no_grad()
def test_guidance_needs_labels():
    denoiser = of(unet(), scheduler=diffusers.DDPMScheduler())
    with pytest.raises(InvalidInputError, match="takes class labels"):
        denoiser.noise(torch.zeros(2, 1, SIDE, SIDE), 3, None, 2.0)


@torch.no_grad()
def test_of_a_learned_variance_the_noise_is_kept():
    denoiser = of(dit(2, 4), scheduler=diffusers.DDPMScheduler())
    x, labels = torch.randn(2, 2, SIDE, SIDE), torch.tensor([1, 2])
    whole = denoiser.loaded.model(x, timestep=torch.full((2,), 9), class_labels=labels).sample
    assert whole.shape[1] == 4
    assert torch.equal(denoiser.noise(x, 9, labels), whole[:, :2])


def test_latents_in_another_precision_come_back_in_their_own():
    denoiser = of(dit().to(torch.bfloat16), scheduler=diffusers.DDPMScheduler())
    found = denoiser.noise(torch.randn(2, 1, SIDE, SIDE), 9, torch.tensor([1, 2]))
    assert found.dtype == torch.float32


def test_pixels_are_clamped_and_latents_decoded(tmp_path):
    pixels = of(dit(), scheduler=diffusers.DDPMScheduler())
    assert isinstance(pixels.decoder, Unavailable)
    x = torch.tensor([-3.0, 0.5, 3.0])[:, None, None, None].expand(3, 1, SIDE, SIDE)
    assert pixels.decoded(x)[:, 0, 0, 0].tolist() == [-1.0, 0.5, 1.0]
    decoder = vae()
    folder = saved(
        tmp_path, model=dit(4), scheduler=diffusers.DDIMScheduler(), decoder=decoder
    )  # fmt: skip
    latents = torch.randn(5, 4, SIDE, SIDE)
    with torch.no_grad():
        expected = decoder.decode(latents / 0.5).sample.clamp(-1, 1)
    assert expected.shape == (5, 3, 2 * SIDE, 2 * SIDE)
    # parts of two in place of one batch
    torch.testing.assert_close(of(folder).decoded(latents, batch=2), expected, atol=1e-5, rtol=0)


def test_a_vae_that_is_null_is_none(tmp_path):
    assert isinstance(of(pixel_folder(tmp_path, vae=[None, None])).decoder, Unavailable)


def test_a_vae_that_is_not_there_is_a_sentence(tmp_path):
    folder = pixel_folder(tmp_path, vae=["diffusers", "AutoencoderKL"])
    with pytest.raises(LoadError, match=r"The decoder of .* could not be loaded"):
        of(folder)


@pytest.mark.parametrize("steps", [0, 1001])
def test_more_steps_than_the_schedule_has_are_refused(steps):
    with pytest.raises(InvalidInputError, match=f"between 1 and 1000; got {steps}"):
        gaussian_denoiser(0.5).clock(steps)


def test_steps_that_are_offset_beyond_the_schedule_are_refused():
    denoiser = gaussian_denoiser(0.5, num_train_timesteps=50, steps_offset=1)
    assert denoiser.clock(25).times[0] == 49
    with pytest.raises(InvalidInputError, match="50 steps reach time 50, beyond the 50 times"):
        denoiser.clock(50)


def test_a_pipeline_in_memory_brings_its_schedule_and_decoder():
    class Pipeline:
        transformer, vae = dit(4), vae()
        scheduler = diffusers.DDIMScheduler(beta_end=0.03)

    denoiser = of(Pipeline())
    assert denoiser.decoder is Pipeline.vae
    torch.testing.assert_close(levels_of(denoiser), Pipeline.scheduler.alphas_cumprod)


def test_the_bundled_model_is_whole():
    denoiser = of(bundled_path("image"))
    assert len(denoiser.classes) == 10
    assert denoiser.shape[1:] == (28, 28)
    assert isinstance(denoiser.decoder, Unavailable)


@pytest.mark.parametrize("kind", ["epsilon", "v_prediction", "sample"])
@pytest.mark.parametrize("steps", [20, 500])
def test_a_step_of_ddim_scales_a_gaussian_by_its_closed_form(kind, steps):
    r"""With $x_0 = \sqrt{\bar\alpha}s^2x/v_t$ and $\varepsilon = \sqrt{1-\bar\alpha}\,x/v_t$.

    One step multiplies $x$ by $(\sqrt{\bar\alpha_t\bar\alpha'}s^2 +
    \sqrt{(1-\bar\alpha_t)(1-\bar\alpha')})/v_t$, whatever the model predicts, and many small ones
    by $\sqrt{v_{\rm end}/v_{\rm start}}$.
    """
    spread = 0.5
    denoiser = gaussian_denoiser(spread, kind)
    clock = denoiser.clock(steps)
    start = x = torch.randn(6, 1, 4, 4, dtype=torch.float64)
    levels = torch.tensor([*clock.levels, 1.0], dtype=torch.float64)
    total = levels * spread**2 + 1 - levels
    for i in range(steps):
        now, then = levels[i], levels[i + 1]
        by = (now * then).sqrt() * spread**2 + ((1 - now) * (1 - then)).sqrt()
        moved = clock.step(denoiser.noise(x, clock.times[i], None), i, x, eta=0, noise=None)
        # levels are float32 numbers inside the scheduler
        torch.testing.assert_close(moved, x * by / total[i], rtol=1e-5, atol=1e-8)
        x = moved
    whole = float((x / start).mean())
    law = float((total[-1] / total[0]).sqrt())
    assert abs(whole / law - 1) < 4 / steps
