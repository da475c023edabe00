"""Settings of decoding with fewer passes."""

from __future__ import annotations

from typing import Literal

from flowscope.lab.config import MOST_DRAWS, MOST_INPUTS, Config, setting, shared_setting

__all__ = ["DecodeConfig"]


class DecodeConfig(Config):
    """Measure how many passes of a masked diffusion language model can be left out.

    The model fills the blanks of prompts one after the other (the reference). Each policy fills
    several at once; its threshold is calibrated on prompts so that at most a share alpha of the
    answers changes, and then tried on fresh ones. Writes a run folder with every policy's passes
    and changed answers, what a window of passes certifies, the verdicts D1 and D2, and report.html.
    The bundled model fills sudoku grids.

    Policies: threshold, factor, entropy-bound, klass (fill what is certain); prophet, sched-linear,
    sched-cosine, sched-exponential, stable, joint (fill all at once when it is time); draft (drafts
    and verifies the reference); plain (a fixed number a pass).
    """

    model: str | None = setting(
        None, "A folder or a hub id", argument=True, unset="the bundled denoiser"
    )
    task: str = setting(
        "sudoku-6x6",
        "Prompts that the bundled denoiser was made for: sudoku-4x4, sudoku-6x6 or sudoku-9x9",
        option=True,
    )
    blanks: tuple[int, ...] | None = setting(
        None,
        "Fewest and most masked cells of a puzzle",
        option=True,
        metavar="N,N",
        min_length=2,
        max_length=2,
        unset="those of the task",
    )
    text: str | None = setting(
        None,
        "Prompts: a text file, or “text” in .jsonl, .csv, .tsv; mask tokens in them are filled",
        option=True,
        unset="those of the task",
    )
    answer: int | None = setting(
        None,
        "Masked tokens behind each prompt of a text",
        option=True,
        ge=1,
        le=100_000,
        unset="mask tokens in the text, or hidden tokens of it",
    )
    hidden: float = setting(
        0.5, "Share of the tokens of a text without mask tokens that is hidden", gt=0, le=1
    )
    tokens: int = setting(128, "Tokens used of each text", ge=2, le=MOST_INPUTS)
    policy: tuple[str, ...] = setting(
        ("threshold", "factor", "prophet", "draft"),
        "Policies to try, of those named above",
        option=True,
        metavar="P,P,…",
        min_length=1,
    )
    alpha: float = setting(
        0.05, "Share of answers that may change, between 0 and 1", option=True, gt=0, lt=1
    )
    delta: float = setting(
        0.05,
        "How often a calibration may fail to keep alpha, between 0 and 1",
        option=True,
        gt=0,
        lt=1,
    )
    method: Literal["learn_then_test", "conformal"] = setting(
        "learn_then_test",
        "Promise: risk at most alpha except with probability delta, or mean risk at most alpha",
    )
    calibrate: str | None = setting(
        None,
        "File of calibrated thresholds: used if it is there, written if it is not",
        option=True,
        metavar="FILE",
        unset="thresholds stay in the run folder",
    )
    calibration: int = setting(
        150, "Prompts on which thresholds are calibrated", option=True, ge=1, le=MOST_INPUTS
    )
    prompts: int = setting(
        150, "Fresh prompts on which policies are tried", option=True, ge=1, le=MOST_INPUTS
    )
    order: Literal["confidence", "margin", "entropy", "random"] = setting(
        "confidence", "What the reference fills first", option=True
    )
    rate: int = setting(1, "Positions that the reference fills in a pass", ge=1, le=100_000)
    block: int = setting(
        0, "Blanks that are filled before the next ones begin; 0 for all at once", option=True, ge=0
    )
    temperature: float = setting(
        0.0, "Temperature of drawn tokens; 0 fills in the leading token", ge=0, le=100
    )
    eos: int | None = setting(None, "Token that ends an answer", ge=0, unset="none")
    mask: int | None = setting(
        None, "Mask token", option=True, ge=0, unset="that of the configuration or the tokenizer"
    )
    shift: bool | None = setting(
        None,
        "Whether position i is named by the logits of position i − 1",
        unset="Dream only",
    )
    windows: tuple[int, ...] = setting(
        (12, 8), "Passes in a window of the late-window certificate", min_length=1
    )
    frontier: bool = setting(
        False, "Whether every threshold is tried on the fresh prompts too, not the chosen ones only"
    )
    controls: bool = setting(
        True, "Whether a fixed number of positions a pass is calibrated too, as the peer of D1"
    )
    batch: int = setting(64, "Sequences in one pass through the model", ge=1, le=100_000)
    maps: int = setting(6, "Fresh prompts of which the page shows every pass", ge=0, le=1000)
    resamples: int = setting(
        999, "Bootstrap resamples of the prompts behind intervals of means", ge=2, le=MOST_DRAWS
    )
    seed: int = shared_setting("seed", "Seed of prompts, random orders, drawn tokens, resampling")
    out: str = shared_setting("out")
    device: str | None = shared_setting("device")
    dtype: str | None = shared_setting("dtype")
    revision: str | None = shared_setting("revision")
    trust_remote_code: bool = shared_setting("trust_remote_code")
    tokenizer: str | None = shared_setting("tokenizer")
