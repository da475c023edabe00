"""Prompts to fill: of a task, of texts, or as a program gives them; calibration and test apart."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from flowscope.errors import InvalidInputError
from flowscope.instruments.decode.config import DecodeConfig
from flowscope.models.infilling.infiller import Infiller
from flowscope.models.infilling.templates import (
    Template,
    appended,
    hidden,
    overlapping,
    written,
)
from flowscope.models.prompts import packaged_texts
from flowscope.models.reading.tokens import Feeding, Window, windows_of
from flowscope.models.texts import Texts, given_texts, read_texts
from flowscope.records import Unavailable

__all__ = ["Material", "material_of"]

_CALIBRATION, _TEST = 1, 2


@dataclass(frozen=True, kw_only=True, eq=False)
class Material:
    """Prompts on which thresholds are calibrated, and fresh ones.

    Attributes
    ----------
    calibration, test
        The prompts.
    task
        What they are, in words.
    left_out
        Prompts that were equal to an earlier one.
    """

    calibration: tuple[Template, ...]
    test: tuple[Template, ...]
    task: str
    left_out: int = 0


def material_of(
    made: Infiller, config: DecodeConfig, prompts: Any, calibration: Any, calibrated: bool
) -> Material:
    """Prompts of a run.

    Parameters
    ----------
    made, config
        The model, and what is asked of it.
    prompts, calibration
        What a program gave: texts, templates, or pairs of ids and blanks; None for those of the
        settings.
    calibrated
        Whether thresholds come from a file, so that no prompt is needed to calibrate them.

    Raises
    ------
    InvalidInputError
        There are too few prompts, or prompts for calibration and for the test overlap.
    """
    if calibration is not None and prompts is None:
        raise InvalidInputError("Give the fresh prompts too: texts=… beside calibration_texts=…")
    if prompts is not None and calibration is not None:
        return _apart(made, config, prompts, calibration)
    if prompts is None and config.text is None and _reads_tasks(made):
        return _of_task(config, calibrated)
    templates, task = _given(made, config, prompts)
    return _divided(templates, task, config, calibrated)


def _reads_tasks(made: Infiller) -> bool:
    """Whether a model has the vocabulary of the tasks, as the bundled denoiser has."""
    from flowscope.nets.sudoku import CHARACTERS

    loaded = made.loaded
    tokenizer = None if isinstance(loaded, Unavailable) else loaded.tokenizer
    if tokenizer is None or isinstance(tokenizer, Unavailable):
        return False
    vocabulary: object = getattr(tokenizer, "get_vocab", dict)()
    return vocabulary == {character: place for place, character in enumerate(CHARACTERS)}


def _of_task(config: DecodeConfig, calibrated: bool) -> Material:
    """Puzzles of the bundled denoiser's task; equal ones are left out of the fresh ones."""
    calibration = () if calibrated else _puzzles(config, config.calibration, _CALIBRATION)
    test = _puzzles(config, config.prompts, _TEST)
    calibration, first = _distinct(calibration)
    test, second = _distinct(test, calibration)
    return Material(calibration=calibration, test=test, task=_task(config), left_out=first + second)


def _task(config: DecodeConfig) -> str:
    """Name of the task, with the blanks that were asked for."""
    if config.blanks is None:
        return config.task
    return f"{config.task}, {config.blanks[0]} to {config.blanks[1]} blanks"


def _puzzles(config: DecodeConfig, count: int, part: int) -> tuple[Template, ...]:
    from flowscope.nets.sudoku import puzzles

    low, high = config.blanks or (0, 0)
    bounds = (low, high) if config.blanks else None
    made = puzzles(config.task, count, seed=2 * config.seed + part, blanks=bounds)
    return tuple(
        Template(ids=ids, blank=blank, truth=truth, text=text)
        for ids, blank, truth, text in zip(
            made.prompts.astype(np.int64), made.region, made.answers.astype(np.int64), made.texts,
            strict=True,
        )
    )  # fmt: skip


def _distinct(
    templates: Iterable[Template], before: Iterable[Template] = ()
) -> tuple[tuple[Template, ...], int]:
    """Templates that equal none before, and how many were left out."""
    known = {template.mark for template in before}
    kept: list[Template] = []
    count = 0
    for template in templates:
        count += 1
        if template.mark not in known:
            known.add(template.mark)
            kept.append(template)
    return tuple(kept), count - len(kept)


def _apart(made: Infiller, config: DecodeConfig, prompts: Any, calibration: Any) -> Material:
    test, task = _given(made, config, prompts)
    first, _ = _given(made, config, calibration)
    shared = overlapping(first, test)
    if shared:
        raise InvalidInputError(
            f"{shared} of {len(test)} fresh prompts are also calibration prompts. A threshold that "
            "was chosen on a prompt says nothing about it: take other prompts."
        )
    fresh, left = _distinct(test[: config.prompts])
    others, more = _distinct(first[: config.calibration])
    return Material(calibration=others, test=fresh, task=task, left_out=left + more)


def _divided(
    templates: Sequence[Template], task: str, config: DecodeConfig, calibrated: bool
) -> Material:
    """The first prompts calibrate, those behind them are fresh; few prompts are shared out."""
    distinct, left = _distinct(templates)
    if calibrated:
        return Material(calibration=(), test=distinct[: config.prompts], task=task, left_out=left)
    if len(distinct) < 2:
        raise InvalidInputError(
            f"There is {len(distinct)} prompt; thresholds are calibrated on some prompts and tried "
            "on others. Give at least two different ones (100 or more for an answer)."
        )
    share = config.calibration / (config.calibration + config.prompts)
    count = config.calibration
    if len(distinct) < config.calibration + config.prompts:
        count = min(max(round(share * len(distinct)), 1), len(distinct) - 1)
    test = distinct[count : count + config.prompts]
    return Material(calibration=distinct[:count], test=test, task=task, left_out=left)


def _given(made: Infiller, config: DecodeConfig, prompts: Any) -> tuple[list[Template], str]:
    """Templates of what was given, or of the text of the settings."""
    if prompts is None:
        if config.text is None:
            return _of_texts(made, config, Texts(texts=packaged_texts(), running=False)), "packaged"
        return _of_texts(made, config, read_texts(config.text)), config.text
    if isinstance(prompts, Template):
        prompts = [prompts]
    items = prompts if isinstance(prompts, str) else list(prompts)
    if not len(items):
        raise InvalidInputError("There is no prompt to fill. Give at least two.")
    if isinstance(items, list) and isinstance(items[0], (Template, tuple)):
        return [_template(item, number) for number, item in enumerate(items)], "given prompts"
    texts = given_texts(items)
    if not isinstance(texts, Texts):
        raise InvalidInputError(
            "Prompts are texts, templates, or pairs of ids and blanks; got a tensor."
        )
    return _of_texts(made, config, texts), "given texts"


def _template(item: Any, number: int) -> Template:
    if isinstance(item, Template):
        return item
    if not isinstance(item, tuple) or len(item) not in (2, 3):
        raise InvalidInputError(
            f"Prompt {number} must be a template, or a tuple of ids, blanks and (if it is known) "
            f"the truth; got {type(item).__name__}."
        )
    try:
        ids, blank = np.asarray(item[0], np.int64), np.asarray(item[1], bool)
        truth = np.asarray(item[2] if len(item) == 3 else (), np.int64)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"Prompt {number} holds no ids: {error}.") from error
    return Template(ids=ids, blank=blank, truth=truth)


def _of_texts(made: Infiller, config: DecodeConfig, texts: Texts) -> list[Template]:
    loaded = made.loaded
    if isinstance(loaded, Unavailable) or isinstance(loaded.tokenizer, Unavailable):
        raise InvalidInputError(
            f"{made.source} has no tokenizer, so that texts cannot be read. Give prompts as pairs "
            "of ids and blanks: flowscope.decode(model, [(ids, blank), …])."
        )
    wanted = config.calibration + config.prompts
    found: list[Template] = []
    feeding = Feeding(masked_share=None, seed=config.seed)
    for number, text in enumerate(texts.texts):
        windows = windows_of(
            loaded.tokenizer, text, feeding, length=config.tokens, running=texts.running
        )
        for window in windows:
            if window.text.any():
                found.append(_of_window(made, config, window, len(found), number))
            if len(found) >= wanted:
                return found
    if not found:
        raise InvalidInputError("The text has no token that can be filled. Give more text.")
    return found


def _of_window(
    made: Infiller, config: DecodeConfig, window: Window, count: int, number: int
) -> Template:
    """A template of one piece of text: an answer behind it, its mask tokens, or hidden tokens."""
    masks = window.ids == made.mask
    if config.answer is not None:
        if masks.any():
            raise InvalidInputError(
                f"Text {number} holds the mask token and is to be answered with {config.answer} "
                "masked tokens. Take the mask token out of the text, or leave answer out."
            )
        return _answered(made, config.answer, window)
    if masks.any():
        return written(window.ids.tolist(), made.mask)
    free = window.text & ~np.isin(window.ids, made.forbidden)
    if not free.any():
        raise InvalidInputError(
            f"Text {number} holds no token that may be hidden. Give longer texts."
        )
    key = (config.seed, count)
    return hidden(window.ids.tolist(), free, config.hidden, made.mask, key)


def _answered(made: Infiller, length: int, window: Window) -> Template:
    """Masks behind the text, before the special tokens that end it."""
    end = int(np.flatnonzero(window.text)[-1]) + 1
    template = appended(window.ids[:end].tolist(), length, made.mask)
    after = window.ids[end:]
    return replace(
        template,
        ids=np.concatenate([template.ids, after]),
        blank=np.concatenate([template.blank, np.zeros(len(after), bool)]),
        region=np.concatenate([template.blank, np.zeros(len(after), bool)]),
    )
