"""The model and the prompts that a configuration names: the same for every command."""

from pathlib import Path
from typing import Any

from flowscope.lab.config import ReadingConfig
from flowscope.models.dtypes import named_dtype
from flowscope.models.loading import Loaded, load
from flowscope.models.prompts import Prompts, packaged_texts, prompts_of
from flowscope.models.reading.tokens import Feeding
from flowscope.models.texts import Texts, read_texts
from flowscope.nets import bundled_path

__all__ = ["chosen_texts", "feeding_of", "loaded_model", "prepared"]


def prepared(config: ReadingConfig) -> tuple[Loaded, Prompts]:
    """The model and the prompts that a configuration names."""
    loaded = loaded_model(config.model, config, None)
    texts, where = chosen_texts(config)
    return loaded, prompts_of(
        loaded,
        texts,
        count=config.prompts,
        length=config.tokens,
        source=where,
        feeding=feeding_of(config),
    )


def feeding_of(config: ReadingConfig) -> Feeding:
    """How a configuration asks texts to be fed."""
    return Feeding(
        special_tokens=config.special_tokens,
        chat=config.chat,
        masked_share=config.masked_share,
        seed=config.seed,
    )


def loaded_model(source: Any, config: ReadingConfig, tokenizer: Any) -> Loaded:
    """The model of a command: a name, a module or a loaded one; the bundled model when None."""
    if isinstance(source, Loaded):
        return source
    if source is None:
        source = bundled_path()
    dtype = named_dtype(config.dtype, config.device)
    in_memory = not isinstance(source, (str, Path))
    placed: dict[str, Any] = {} if in_memory else {"device": config.device, "dtype": dtype}
    return load(
        source,
        tokenizer=tokenizer,
        revision=config.revision,
        trust_remote_code=config.trust_remote_code,
        **placed,
    )


def chosen_texts(config: ReadingConfig) -> tuple[Texts, str]:
    """The texts of a command, and where they come from."""
    if config.text is None:
        return Texts(texts=packaged_texts(), running=False), "packaged prompts"
    return read_texts(config.text), config.text
