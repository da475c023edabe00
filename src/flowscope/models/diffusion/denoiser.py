r"""A diffusion model with its schedule: what turns noise into images, one reverse step at a time.

Variance preserving: $x_t = \sqrt{\bar\alpha_t}\,x_0 + \sqrt{1-\bar\alpha_t}\,\varepsilon$. A step
is that of `diffusers`' DDIM with $\eta$: 0 is deterministic, 1 has the noise of DDPM. Any scheduler
of the library that is variance preserving serves, because its $\bar\alpha$ are taken from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from flowscope.errors import InvalidInputError, LoadError, UnsupportedModelError
from flowscope.models.checkpoints.hub import fetched
from flowscope.models.checkpoints.sources import ModelFolder, json_object, located
from flowscope.models.checkpoints.weights import complete_model
from flowscope.models.loading import Loaded
from flowscope.records import Unavailable

__all__ = ["Clock", "Denoiser", "denoiser_of", "image_shape"]

# A chain of diffusion that ends with more of the data than this does not end in noise.
_LAST_SIGNAL = 0.05


@dataclass(frozen=True, kw_only=True, eq=False)
class Denoiser:
    """A model that predicts noise, with everything a sampler needs to know of it.

    Attributes
    ----------
    loaded
        The model.
    schedule
        Configuration of a DDIM scheduler with the model's own noise levels.
    decoder
        What turns latents into images, or why there is none (then they are images).
    classes
        Names of the classes it can be asked for; empty when it takes no label.
    shape
        Channels, height and width of a latent.
    learned_variance
        Whether the second half of the output channels is a variance, which samplers here ignore.
    """

    loaded: Loaded
    schedule: dict[str, Any]
    decoder: nn.Module | Unavailable
    classes: tuple[str, ...]
    shape: tuple[int, int, int]
    learned_variance: bool

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return next(self.loaded.model.parameters()).device

    def clock(self, steps: int) -> Clock:
        """The reverse steps of a sampler of that many."""
        return Clock(schedule=self.schedule, steps=steps, device=self.device)

    def noise(
        self,
        x: Float[Tensor, "n c h w"],
        time: int,
        labels: Int[Tensor, "n"] | None,
        guidance: float = 1.0,
    ) -> Float[Tensor, "n c h w"]:
        """The model's prediction at one time, guided away from no label when guidance is not 1.

        A guided call runs one batch of both, with labels first, as `couple` with ``branches=2``
        expects it.
        """
        if guidance == 1:
            return self._raw(x, time, labels)
        if labels is None:
            raise InvalidInputError("guidance needs a model that takes class labels.")
        if not getattr(self.loaded.model.config, "num_embeds_ada_norm", None):
            raise InvalidInputError(
                "guidance needs a label for no class, which this model was not made with; leave "
                "guidance at 1."
            )
        empty = torch.full_like(labels, len(self.classes))
        both = self._raw(torch.cat([x, x]), time, torch.cat([labels, empty]))
        asked, free = both.chunk(2)
        return free + guidance * (asked - free)

    def _raw(self, x: Tensor, time: int, labels: Tensor | None) -> Tensor:
        model = self.loaded.model
        given = {} if labels is None else {"class_labels": labels}
        times = torch.full((len(x),), time, device=x.device)
        weight = next(model.parameters())
        found = model(x.to(weight.dtype), timestep=times, **given).sample
        kept: Tensor = found[:, : self.shape[0]] if self.learned_variance else found
        return kept.to(x.dtype)

    @torch.no_grad()
    def decoded(
        self, x: Float[Tensor, "n c h w"], batch: int = 16
    ) -> Float[Tensor, "n channels height width"]:
        """Latents as images in [−1, 1]."""
        if isinstance(self.decoder, Unavailable):
            return x.clamp(-1, 1)
        scale = float(getattr(self.decoder.config, "scaling_factor", 1.0))
        shift = float(getattr(self.decoder.config, "shift_factor", None) or 0.0)
        weight = next(self.decoder.parameters())
        parts = [(part / scale + shift).to(weight.dtype) for part in torch.split(x, batch)]
        decode: Any = self.decoder.decode
        return torch.cat([decode(part).sample.to(x.dtype) for part in parts]).clamp(-1, 1)


class Clock:
    """Reverse steps from noise to data: step 0 leaves the noise, ``steps`` is the end."""

    def __init__(self, *, schedule: dict[str, Any], steps: int, device: torch.device) -> None:
        from diffusers import DDIMScheduler

        self._scheduler = DDIMScheduler.from_config(schedule)
        most = int(self._scheduler.config.num_train_timesteps)
        if not 1 <= steps <= most:
            raise InvalidInputError(f"steps must lie between 1 and {most}; got {steps}.")
        self._scheduler.set_timesteps(steps)
        self.times: list[int] = [int(t) for t in self._scheduler.timesteps]
        if max(self.times) >= most:
            raise InvalidInputError(
                f"{steps} steps reach time {max(self.times)}, beyond the {most} times of the "
                "schedule (its steps_offset); take fewer steps."
            )
        self.device = device

    def __len__(self) -> int:
        return len(self.times)

    @property
    def levels(self) -> list[float]:
        r"""$\bar\alpha$ at each step."""
        return [float(self._scheduler.alphas_cumprod[t]) for t in self.times]

    def step(
        self,
        prediction: Float[Tensor, "n c h w"],
        index: int,
        x: Float[Tensor, "n c h w"],
        *,
        eta: float,
        noise: Float[Tensor, "n c h w"] | None,
    ) -> Float[Tensor, "n c h w"]:
        """One reverse step; ``noise`` is used when eta is not 0."""
        moved: Tensor = self._scheduler.step(
            prediction, self.times[index], x, eta=eta, variance_noise=noise if eta else None
        ).prev_sample
        return moved


@dataclass(frozen=True, kw_only=True)
class _Parts:
    """What lies beside a denoiser: its scheduler, decoder and class names, where there are."""

    scheduler: Any | Unavailable
    decoder: nn.Module | Unavailable
    classes: tuple[str, ...] = field(default=())


def denoiser_of(
    source: Any,
    loaded: Loaded,
    *,
    scheduler: Any = None,
    classes: Sequence[str] = (),
    revision: str | None = None,
) -> Denoiser:
    """A loaded model with the schedule it was trained with.

    Parameters
    ----------
    source
        Where the model came from: a pipeline folder, a hub id, a pipeline in memory, or the model.
    loaded
        The model itself.
    scheduler
        A scheduler of diffusers, or a folder with its configuration; the one beside the model by
        default.
    classes
        Names of the classes, where the folder has none.
    revision
        Revision of a hub id.

    Raises
    ------
    InvalidInputError
        When there is no schedule, or one that does not match the model.
    UnsupportedModelError
        For a model that is no image denoiser, or needs text.
    """
    model = loaded.model
    shape, learned = _latent(model)
    parts = _beside(source, loaded, revision)
    chosen = parts.scheduler if scheduler is None else _scheduler(scheduler)
    if isinstance(chosen, Unavailable):
        raise InvalidInputError(
            f"A sampler needs the schedule that the model was trained with: {chosen.reason}. Give "
            "scheduler=, a scheduler of diffusers or the folder of its configuration."
        )
    named = tuple(classes) or parts.classes
    known = _labels(model)
    if classes and len(classes) != known:
        raise InvalidInputError(
            f"The model takes {known} class labels; got the names of {len(classes)} classes."
        )
    if len(named) != known:
        named = tuple(f"class {i}" for i in range(known))
    return Denoiser(
        loaded=loaded,
        schedule=_variance_preserving(chosen, learned),
        decoder=parts.decoder,
        classes=named,
        shape=shape,
        learned_variance=learned,
    )


def _labels(model: Any) -> int:
    """How many classes it can be asked for; 0 when it takes no label."""
    config = model.config
    if getattr(config, "class_embed_type", None):
        raise UnsupportedModelError(
            f"{type(model).__name__} is conditioned on vectors (class_embed_type "
            f"{config.class_embed_type!r}), not on numbered classes, which is not supported "
            "here. Couple it inside your pipeline: with flowscope.couple(model, g): ..."
        )
    names = ("num_embeds_ada_norm", "num_class_embeds")
    return int(next((n for n in (getattr(config, name, None) for name in names) if n), 0))


def _latent(model: Any) -> tuple[tuple[int, int, int], bool]:
    """Channels and sides of what it denoises, and whether it predicts a variance too."""
    config = getattr(model, "config", None)
    size, channels = (getattr(config, name, None) for name in ("sample_size", "in_channels"))
    if size is None or channels is None:
        raise UnsupportedModelError(
            f"{type(model).__name__} is not a denoiser of images: its configuration has no "
            "sample_size and in_channels. Give a diffusion model of diffusers."
        )
    crossed = (getattr(config, name, None) for name in ("cross_attention_dim", "caption_channels",
                                                        "joint_attention_dim"))  # fmt: skip
    if any(crossed):
        raise UnsupportedModelError(
            f"{type(model).__name__} is conditioned on text; text-to-image models are not "
            "supported here. Couple it inside your pipeline: with flowscope.couple(model, g, "
            "branches=2): ..."
        )
    height, width = (size, size) if isinstance(size, int) else size
    out = getattr(config, "out_channels", None) or channels
    if out not in (channels, 2 * channels):
        raise InvalidInputError(
            f"The model takes {channels} channels and gives {out}; a schedule of noise needs as "
            f"many ({channels}), or twice as many with a learned variance."
        )
    return (int(channels), int(height), int(width)), out == 2 * channels


def _beside(source: Any, loaded: Loaded, revision: str | None) -> _Parts:
    if isinstance(source, (str, Path)):
        place = located(source, revision)
        assert isinstance(place, ModelFolder)
        if not place.subfolder:
            none = Unavailable(f"{source} is a model without a pipeline around it")
            return _Parts(scheduler=none, decoder=none)
        return _from_pipeline_folder(place, loaded, revision)
    scheduler = getattr(source, "scheduler", None)
    decoder = getattr(source, "vae", None) or getattr(source, "vqvae", None)
    absent = Unavailable("the model is in memory and has no schedule")
    return _Parts(
        scheduler=absent if scheduler is None else scheduler,
        decoder=decoder if isinstance(decoder, nn.Module) else absent,
    )


def _from_pipeline_folder(place: ModelFolder, loaded: Loaded, revision: str | None) -> _Parts:
    index = _index(place, revision)
    scheduler: Any | Unavailable = Unavailable(f"{place.name} has no scheduler")
    if _holds(index, "scheduler"):
        scheduler = _scheduler(place.path, subfolder="scheduler", revision=revision)
    decoder: nn.Module | Unavailable = Unavailable("the model works on pixels")
    for part in ("vae", "vqvae"):
        if _holds(index, part):
            decoder = _decoder(place, part, str(index[part][1]), loaded, revision)
    classes = _class_names(index.get("id2label"))
    return _Parts(scheduler=scheduler, decoder=decoder, classes=classes)


def _class_names(labels: Any) -> tuple[str, ...]:
    """Names of classes in the order of their numbers; none where there is no such table."""
    numbered = isinstance(labels, dict) and all(str(key).isdecimal() for key in labels)
    return tuple(str(labels[key]) for key in sorted(labels, key=int)) if numbered else ()


def _holds(index: dict[str, Any], part: str) -> bool:
    """Whether a pipeline has a part; an optional one that it lacks is written as nulls."""
    return isinstance(index.get(part), list) and any(index[part][:1])


def _decoder(
    place: ModelFolder, part: str, name: str, loaded: Loaded, revision: str | None
) -> nn.Module:
    import diffusers

    weight = next(loaded.model.parameters())
    network = complete_model(
        f"The decoder of {place.name}",
        lambda: getattr(diffusers, name).from_pretrained(
            place.path,
            subfolder=part,
            use_safetensors=True,
            torch_dtype=weight.dtype,
            revision=revision,
            local_files_only=place.offline,
            output_loading_info=True,
        ),
    )
    return network.to(weight.device)


def _index(place: ModelFolder, revision: str | None) -> dict[str, Any]:
    file = Path(place.path) / "model_index.json"
    if not file.is_file():
        file = fetched(place.path, "model_index.json", revision, offline=place.offline)
    return json_object(file)


def _scheduler(given: Any, subfolder: str | None = None, revision: str | None = None) -> Any:
    """The scheduler of a folder, whatever its class, or the one that was given."""
    if not isinstance(given, (str, Path)):
        return given
    import diffusers

    try:
        config = diffusers.DDIMScheduler.load_config(given, subfolder=subfolder, revision=revision)
        if not isinstance(config, dict) or "_class_name" not in config:
            raise ValueError("it names no class")
        kind = getattr(diffusers, config["_class_name"])
        return kind.from_config(config)
    except Exception as error:  # a library raises whatever it meets in a damaged file
        reason = f"{str(error).partition(chr(10))[0]} Give a folder with a scheduler_config.json."
        raise LoadError(f"{given} holds no scheduler of diffusers: {reason}") from error


def _variance_preserving(scheduler: Any, learned: bool) -> dict[str, Any]:
    """Configuration of the DDIM scheduler with the same noise levels."""
    from diffusers import DDIMScheduler

    name = type(scheduler).__name__
    levels = getattr(scheduler, "alphas_cumprod", None)
    if levels is None:
        raise InvalidInputError(
            f"{name} is not variance preserving (it has no alphas_cumprod). Flow matching and "
            "variance exploding models are not supported, because sampling starts from unit noise "
            "here."
        )
    if float(levels[-1]) > _LAST_SIGNAL:
        raise InvalidInputError(
            f"The schedule of {name} keeps {float(levels[-1]):.0%} of the signal at its last time: "
            "it does not match a model that is sampled from pure noise. Give the schedule that the "
            "model was trained with."
        )
    kind = getattr(scheduler.config, "prediction_type", "epsilon")
    if kind not in ("epsilon", "sample", "v_prediction") or (learned and kind == "sample"):
        raise InvalidInputError(
            f"The schedule says that the model predicts {kind!r}, which does not match it; known "
            "are 'epsilon', 'v_prediction' and, without a learned variance, 'sample'."
        )
    try:
        own = DDIMScheduler.from_config(scheduler.config)
    except NotImplementedError:  # a curve of noise levels that DDIM has no name for
        own = DDIMScheduler()
    config = dict(own.config)
    config.pop("_use_default_values", None)
    # Defaults differ from class to class and are not carried over: the numbers themselves are.
    if not torch.equal(own.alphas_cumprod, levels):
        config |= {"beta_schedule": "linear", "trained_betas": scheduler.betas.tolist()}
        config |= {"num_train_timesteps": len(levels), "rescale_betas_zero_snr": False}
    config["prediction_type"] = kind
    # A clipped prediction is not the model's; a pipeline that clips is sampled without.
    return {**config, "clip_sample": False, "thresholding": False}


def image_shape(denoiser: Denoiser) -> tuple[int, int, int]:
    """Channels, height and width of the images that its latents become."""
    if isinstance(denoiser.decoder, Unavailable):
        return denoiser.shape
    with torch.no_grad():
        one = denoiser.decoded(torch.zeros(1, *denoiser.shape, device=denoiser.device))
    return one.shape[1], one.shape[2], one.shape[3]
