"""A small batch for a model: enough to see how it runs, made from what it says about itself.

Inputs are made per *argument name* of the model's forward pass, never per architecture.
"""

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.models.loading import Loaded
from flowscope.models.reading.targets import shifted_ids
from flowscope.models.reading.tokens import PLAIN, windows_of
from flowscope.records import Unavailable

__all__ = ["sample_inputs"]

TEXT = (
    "It was the best of times, it was the worst of times, it was the age of wisdom, it was the age "
    "of foolishness, it was the epoch of belief, it was the epoch of incredulity."
)
_ROWS, _LENGTH, _CONTEXT = 2, 12, 5


def sample_inputs(loaded: Loaded, *, seed: int = 0) -> dict[str, Any]:
    """Inputs that the model accepts: two rows, short, always the same for a seed.

    Parameters
    ----------
    loaded
        A model of transformers or diffusers.
    seed
        Of the noise that stands for images, latents and conditions; token ids do not depend on it.

    Raises
    ------
    InvalidInputError
        When the model needs an argument nobody can make up.
    """
    if loaded.kind == "torch":
        raise InvalidInputError(
            f"{type(loaded.model).__name__} is a plain torch module: only you know what it takes. "
            "Give an example, e.g. flowscope.doctor(model, inputs={'x': torch.randn(1, 5, 8)})."
        )
    diffusion = loaded.kind == "diffusion"
    makers = (_denoiser_makers if diffusion else _transformer_makers)(loaded, seed)
    parameters = inspect.signature(loaded.model.forward).parameters
    made = {name: makers[name]() for name in parameters if name in makers}
    batch = {name: value for name, value in made.items() if value is not None}
    needed = [
        n
        for n, p in parameters.items()
        if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD
    ]
    missing = [name for name in needed if name not in batch]
    if missing:
        raise InvalidInputError(
            f"{type(loaded.model).__name__} needs {missing[0]!r}, which flowscope cannot make up. "
            "Give an example batch with inputs={...}."
        )
    return batch


def _at(loaded: Loaded) -> tuple[torch.device, torch.dtype]:
    parameter = next(loaded.model.parameters())
    device = parameter.device if not parameter.is_meta else torch.device("cpu")
    return device, parameter.dtype


def _noise(loaded: Loaded, seed: int) -> Callable[..., Tensor]:
    device, dtype = _at(loaded)
    generator = torch.Generator().manual_seed(seed)
    return lambda *shape: torch.randn(*shape, generator=generator).to(device, dtype)


def _transformer_makers(loaded: Loaded, seed: int) -> dict[str, Callable[[], Any]]:
    model: Any = loaded.model
    config, main = model.config, model.main_input_name
    (device, _), noise = _at(loaded), _noise(loaded, seed)
    vision, text = getattr(config, "vision_config", config), getattr(config, "text_config", config)

    def ids(length: int) -> Tensor:
        if isinstance(loaded.tokenizer, Unavailable):
            size = int(getattr(text, "vocab_size", 2))
            return (torch.arange(_ROWS * length) % size).reshape(_ROWS, length).to(device)
        return _text_ids(loaded.tokenizer, length).to(device)

    def pixels() -> Tensor | None:
        size = getattr(vision, "image_size", None)
        if size is None:
            return None
        height, width = size if isinstance(size, (list, tuple)) else (size, size)
        return noise(_ROWS, getattr(vision, "num_channels", 3), height, width)

    def spectrogram() -> Tensor:
        frames = 2 * getattr(config, "max_source_positions", 50)
        return noise(_ROWS, getattr(config, "num_mel_bins", 80), frames)

    makers: dict[str, Callable[[], Any]] = {"input_ids": lambda: ids(_LENGTH)}
    if main == "pixel_values":
        makers = {"pixel_values": pixels}
    elif main == "input_features":
        makers = {"input_features": spectrogram}
    elif main == "input_values":
        makers = {"input_values": lambda: noise(_ROWS, 4000)}
    elif hasattr(config, "vision_config") and not model.can_generate():
        makers["pixel_values"] = pixels
    if getattr(config, "is_encoder_decoder", False):
        makers["decoder_input_ids"] = lambda: shifted_ids(model, ids(_CONTEXT))
    return makers


def _text_ids(tokenizer: Any, length: int) -> Tensor:
    """Rows of one length as a model is fed them: with the special tokens of the tokenizer."""
    text = " ".join([TEXT] * (1 + _ROWS * length // 8))
    windows = windows_of(tokenizer, text, PLAIN, length=length, running=True)
    rows = [window.ids for window in windows if len(window.ids) == length][:_ROWS]
    if len(rows) < _ROWS:  # a tokenizer of few words
        rows = (rows or [np.resize(tokenizer(text)["input_ids"], length)]) * _ROWS
    return torch.from_numpy(np.stack(rows[:_ROWS]).astype(np.int64))


def _denoiser_makers(loaded: Loaded, seed: int) -> dict[str, Callable[[], Any]]:
    config: Any = loaded.model.config
    (device, dtype), noise = _at(loaded), _noise(loaded, seed)

    def known(*names: str) -> int:
        return int(next((config[n] for n in names if config.get(n)), 0))

    def picture() -> Tensor:
        size = config.get("sample_size") or 16
        height, width = size if isinstance(size, (list, tuple)) else (size, size)
        return noise(_ROWS, known("in_channels"), height, width)

    def latent() -> Tensor:
        packed = "img_ids" in inspect.signature(loaded.model.forward).parameters
        return noise(_ROWS, 16, known("in_channels")) if packed else picture()

    def context() -> Tensor | None:
        width = known("caption_channels", "joint_attention_dim", "cross_attention_dim")
        return noise(_ROWS, _CONTEXT, width) if width else None

    def labels() -> Tensor | None:
        count = known("num_embeds_ada_norm", "num_class_embeds")
        return torch.zeros(_ROWS, dtype=torch.long, device=device) if count else None

    def sizes() -> dict[str, Tensor | None]:
        used = config.get("use_additional_conditions") or config.get("sample_size") == 128
        ones = torch.ones(_ROWS, 2, device=device, dtype=dtype)
        return {"resolution": ones if used else None, "aspect_ratio": ones[:, :1] if used else None}

    pooled = known("pooled_projection_dim")
    return {
        "hidden_states": latent,
        "sample": picture,
        "timestep": lambda: torch.tensor([0.25, 0.75], device=device, dtype=dtype),
        "class_labels": labels,
        "encoder_hidden_states": context,
        "pooled_projections": lambda: noise(_ROWS, pooled) if pooled else None,
        "added_cond_kwargs": lambda: sizes() if "caption_channels" in config else None,
        "img_ids": lambda: torch.zeros(16, 3, device=device, dtype=dtype),
        "txt_ids": lambda: torch.zeros(_CONTEXT, 3, device=device, dtype=dtype),
        "guidance": lambda: (
            torch.ones(_ROWS, device=device) if config.get("guidance_embeds") else None
        ),
    }
