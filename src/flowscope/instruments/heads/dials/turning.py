r"""What the geometry of attention is worth: loss of a language model with its dials turned.

A dial changes attention logits by some $\Delta$ (`flowscope.levers.geometry_attention`), and any
change of that size does harm. Beside the loss with the dial stands the loss with random changes of
the same norm in every row: only their difference says that a sector matters for what it is rather
than for how large it is.

A causal model names the next token. A masked one names tokens that were hidden behind its mask
token (fifteen in a hundred by default), the same ones for every dial.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from flowscope.errors import InvalidInputError
from flowscope.evidence import Counts, mean_over_prompts
from flowscope.evidence.intervals import bounds_of
from flowscope.levers import geometry_attention
from flowscope.models.loading import Loaded
from flowscope.models.prompts import Batch, Prompts, batches_of
from flowscope.models.reading.targets import NONE, hidden_positions
from flowscope.models.reading.tokens import Window
from flowscope.models.reading.words import mask_token
from flowscope.records import Unavailable

__all__ = ["Dial", "dial_table"]


Kind = Literal["metric", "exact", "flux", "alpha", "temperature", "square"]


_KINDS = ("metric", "exact", "flux", "alpha", "temperature", "square")


_LOGITS_HELD = 2**26


_LOGITS_AT_ONCE = 2**22


Sums = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Dial:
    """One dial and where it is turned to.

    Attributes
    ----------
    kind
        Which dial of `flowscope.levers.geometry_attention`.
    value
        A number, or (a, b) of the operator square.

    Examples
    --------
    >>> Dial(kind="square", value=(0, 1)).setting
    'a=0, b=1'
    >>> Dial(kind="flux", value=0.5).options()
    {'flux': 0.5}
    """

    kind: Kind
    value: float | tuple[float, float]

    def __post_init__(self) -> None:
        if self.kind not in _KINDS:
            raise InvalidInputError(f"kind must be one of {list(_KINDS)}; got {self.kind!r}.")
        if isinstance(self.value, tuple) != (self.kind == "square"):
            raise InvalidInputError(
                f"the dial square takes a pair (a, b), every other dial a number; got "
                f"{self.value!r} for {self.kind}."
            )

    @property
    def setting(self) -> str:
        """Where it is turned to, in words."""
        if isinstance(self.value, tuple):
            return "a={:g}, b={:g}".format(*self.value)
        return f"{self.value:g}"

    def options(self) -> dict[str, Any]:
        """Arguments of `flowscope.levers.geometry_attention`."""
        return {self.kind: self.value}


def dial_table(
    loaded: Loaded,
    prompts: Prompts,
    dials: Sequence[Dial],
    counts: Counts,
    *,
    batch: int,
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
    share: float = 0.15,
    seed: int = 0,
    draws: int = 1,
    advance: Callable[[int], None] = lambda prompts: None,
) -> pd.DataFrame | Unavailable:
    """Mean loss, in nats per named token, of the model itself and under each dial.

    Parameters
    ----------
    loaded, prompts
        What, on what.
    dials
        One row each, after the row of the unchanged model (dial ``"none"``).
    counts
        Resampled prompts. Changes are taken within prompts, so what makes a prompt hard is out of
        them; random changes are averaged over draws, and their interval is over prompts alone.
    batch
        Prompts at once; fewer where their logits would not fit.
    layers, heads
        Which attention is dialled; all by default.
    share
        Share of the tokens of a masked model that are hidden and named; 0 names visible ones.
    seed, draws
        Of the masked tokens and the random changes, and how many random changes are averaged.
    advance
        Told the number of prompts after every batch: every prompt is run once, and 1 + draws times
        for each dial.

    Returns
    -------
    DataFrame or Unavailable
        Loss and perplexity; the change of loss under the dial, under random changes, and by how
        much the first exceeds the second, with intervals; how far both moved attention (root mean
        square of the norm of Δz over layers and heads, and mean total variation of rows). The norms
        of both are equal in every row of a layer that sees the same states; after other layers have
        been changed they are close.
        Layers are numbered from 1, as in every table. A dial that the model cannot take (the
        operator square under a soft-cap) has no numbers and says why under ``because``.
        Unavailable, with the reason, for a model that names no tokens.

    Raises
    ------
    InvalidInputError
        For layers and heads that are not there.
    """
    if draws < 1:
        raise InvalidInputError(f"draws must be at least 1; got {draws}.")
    task = _task_of(loaded, prompts, share, seed)
    if isinstance(task, Unavailable):
        return task
    passes = _Passes(loaded, task, _fitting(batch, loaded, prompts), advance)
    own, _ = passes.losses({})
    lines = [_line("none", "", (own, own, np.full_like(own, np.nan)), task.sizes, counts)]
    for dial in dials:
        chosen = {**dial.options(), "layers": layers, "heads": heads}
        try:
            loss, moved = passes.losses(chosen)
        except InvalidInputError as error:
            if dial.kind != "square":
                raise
            lines.append(_line(dial.kind, dial.setting, None, task.sizes, counts, str(error)))
            continue
        drawn = [passes.losses({**chosen, "noise": seed + k}) for k in range(draws)]
        losses = loss, own, np.mean([found for found, _ in drawn], 0)
        beside = {f"random_{key}": np.mean([other[key] for _, other in drawn]) for key in moved}
        line = _line(dial.kind, dial.setting, losses, task.sizes, counts)
        lines.append(line | moved | beside)
    table = pd.DataFrame(lines)
    table.insert(2, "layers", _words(layers, first=1))
    table.insert(3, "heads", _words(heads))
    table.loc[0, ["layers", "heads"]] = "none"
    return table


@dataclass(frozen=True, kw_only=True, eq=False)
class _Task:
    """What goes in, and what each position is to name: −1 where it names nothing."""

    prompts: Prompts
    targets: tuple[NDArray[np.int64], ...]

    @property
    def sizes(self) -> Sums:
        """Tokens to name, for each prompt."""
        return np.array([float((target >= 0).sum()) for target in self.targets])


def _task_of(loaded: Loaded, prompts: Prompts, share: float, seed: int) -> _Task | Unavailable:
    if loaded.kind == "causal_lm" and not prompts.images:
        targets = tuple(prompts.at(number).targets for number in range(len(prompts)))
        return _Task(prompts=prompts, targets=targets)
    if loaded.kind == "masked_lm" and not prompts.images:
        return _masked(loaded, prompts, share, seed)
    return Unavailable(
        f"a model of kind {loaded.kind} names no token of its input, so there is no loss to compare"
    )


def _masked(loaded: Loaded, prompts: Prompts, share: float, seed: int) -> _Task | Unavailable:
    """Some tokens of every prompt behind the mask token; special tokens stay."""
    if isinstance(loaded.tokenizer, Unavailable):
        return Unavailable(f"no tokenizer gives a mask token: {loaded.tokenizer.reason}")
    token = mask_token(loaded.tokenizer)
    if token is None:
        return Unavailable("the tokenizer has no mask token, so that no token can be hidden")
    places = tuple(
        hidden_positions(
            Window(ids=prompts.at(number).shown, text=prompts.at(number).text),
            token,
            share=share,
            seed=(seed, number),
        )
        for number in range(len(prompts))
    )
    fed = replace(prompts, items=tuple(place.ids for place in places), positions=places)
    targets = tuple(np.where(place.named, place.targets, NONE) for place in places)
    return _Task(prompts=fed, targets=targets)


@dataclass(frozen=True, eq=False)
class _Passes:
    """A model run over a task, with dials or without."""

    loaded: Loaded
    task: _Task
    batch: int
    advance: Callable[[int], None]

    @torch.no_grad()
    def losses(self, options: dict[str, Any]) -> tuple[Sums, dict[str, float]]:
        """Sum of losses over the tokens of each prompt, and how far attention was moved."""
        found = np.zeros(len(self.task.prompts))
        with geometry_attention(self.loaded.model, **options) as lever:
            for batch in batches_of(self.loaded, self.task.prompts, self.batch):
                found[batch.prompts] = self._sums(batch)
                self.advance(len(batch.prompts))
        table = lever.table
        moved = {
            "norm": math.sqrt((table["norm"] ** 2).mean()) if len(table) else 0.0,
            "total_variation": float(table["total_variation"].mean()) if len(table) else 0.0,
        }
        return found, moved

    def _sums(self, batch: Batch) -> Sums:
        logits: Tensor = self.loaded.model(**batch.inputs).logits
        wanted = torch.full(batch.mask.shape, -1)
        for row, number in enumerate(batch.prompts):
            target = torch.from_numpy(self.task.targets[number])
            wanted[row, : len(target)] = target
        rows, columns = (x.to(logits.device) for x in (wanted >= 0).nonzero(as_tuple=True))
        named = wanted.to(logits.device)[rows, columns]
        sums = torch.zeros(len(batch.prompts), dtype=torch.float64)
        step = max(_LOGITS_AT_ONCE // logits.shape[-1], 1)
        for start in range(0, len(rows), step):
            some = slice(start, start + step)
            z = logits[rows[some], columns[some]].float()
            loss = F.cross_entropy(z, named[some], reduction="none")
            sums.index_add_(0, rows[some].cpu(), loss.double().cpu())
        return np.asarray(sums.numpy())


def _fitting(batch: int, loaded: Loaded, prompts: Prompts) -> int:
    """A batch whose logits fit."""
    outcomes = int(getattr(getattr(loaded.model, "config", None), "vocab_size", None) or 1)
    longest = max(len(item) for item in prompts.items)
    return max(min(batch, _LOGITS_HELD // (longest * outcomes)), 1)


def _line(
    name: str,
    setting: str,
    losses: tuple[Sums, Sums, Sums] | None,
    sizes: Sums,
    counts: Counts,
    because: str = "",
) -> dict[str, Any]:
    """One row: the loss under a dial, beside the model's own and that under random changes."""
    loss, own, random = losses or (np.full(len(sizes), np.nan),) * 3
    sums = np.stack([loss, loss - own, random - own, loss - random], 1)
    means, interval = mean_over_prompts(sums, np.repeat(sizes[:, None], 4, 1), counts)
    low, high = bounds_of(interval, 4)
    return {
        "dial": name,
        "setting": setting,
        "loss": means[0],
        "perplexity": float(np.exp(means[0])),
        "change": means[1],
        "change_low": low[1],
        "change_high": high[1],
        "random_change": means[2],
        "random_change_low": low[2],
        "random_change_high": high[2],
        "excess": means[3],
        "excess_low": low[3],
        "excess_high": high[3],
        "norm": 0.0,
        "total_variation": 0.0,
        "random_norm": math.nan,
        "random_total_variation": math.nan,
        "tokens": int(sizes.sum()),
        "prompts": len(sizes),
        "because": because,
    }


def _words(numbers: Sequence[int] | None, first: int = 0) -> str:
    if numbers is None:
        return "all"
    return ", ".join(str(number + first) for number in sorted(numbers))
