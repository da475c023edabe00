r"""Several models drawn to a common law of their states while they run, then undone.

Models of one tokenizer and width run side by side on the same tokens. After a block the state $x$
of a token in model k moves by

$$ x \leftarrow x + \lambda\,(T_k(x) - x), \qquad 0 \le \lambda \le 1 , $$

towards the middle of all models (source 003, eq 17, with the sign and the square of E37).

* ``paired``: $T_k(x)$ is the mean, over the models, of the states of the *same* token. The states
  of two models differ by $(1-\lambda)$ times as much afterwards.
* ``transport``: $T_k$ is the map to the entropic barycenter of the clouds of tokens of each row of
  the batch, debiased (`transport.barycenter_drift`). It is what 003 asks for. It does not know
  which token is which: `ConsensusChange.matched` says how often a token is matched to itself. In a
  causal model it also lets a token see later ones, because the barycenter is of the whole row.

Bases of hidden states are arbitrary: two models may compute the same function in other coordinates.
With ``align="procrustes"`` each model's states are turned to those of the first by the orthogonal
matrix that brings the same tokens closest, and turned back after the move. It needs four times as
many tokens as the states have features, from `Consensus.fit` or from the pass itself.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import pandas as pd
import torch
from torch import Tensor, nn

from flowscope.errors import InvalidInputError, TapError
from flowscope.levers.agreement.lockstep import Event, Member, in_lockstep
from flowscope.levers.agreement.members import (
    members_of,
    refuse_depths,
    refuse_inputs,
    refuse_states,
)
from flowscope.levers.agreement.middles import (
    Meeting,
    Middle,
    paired_middle,
    transport_middle,
)
from flowscope.levers.selection import indices
from flowscope.transport import orthogonal_map

__all__ = ["Consensus", "ConsensusChange", "consensus"]

Coupling = Literal["paired", "transport"]
Align = Literal["none", "procrustes"]
Watch = Callable[[int, tuple[Tensor, ...]], None]
TOKENS_PER_FEATURE = 4
"""Tokens that an alignment needs, for each feature of the states."""


@dataclass(frozen=True, kw_only=True)
class ConsensusChange:
    """What the lever did after one block, over the passes so far.

    Attributes
    ----------
    layer
        Index of the block.
    passes, tokens
        How often states were moved there, and how many tokens in all.
    distance
        Root mean square distance of a state from the middle before the move, in units of the root
        mean square of the states.
    matched
        Share of tokens that transport matches to themselves; None for ``paired``.
    unsolved
        Rows whose couplings missed their tolerance; 0 for ``paired``.
    """

    layer: int
    passes: int
    tokens: int
    distance: float
    matched: float | None
    unsolved: int


def consensus(
    models: Sequence[Any],
    layers: Sequence[int] | None = None,
    strength: float = 1.0,
    coupling: Coupling = "paired",
    align: Align = "none",
    *,
    watch: Watch | None = None,
) -> "Consensus":
    """Draw the states of several models together while a ``with`` block lasts.

    Parameters
    ----------
    models
        Language models of one tokenizer, width and depth, as modules or as `flowscope.load` returns
        them. One model, or the same one several times, is left bitwise itself.
    layers
        After which blocks states move, from 0; all by default.
    strength
        λ in [0, 1]: 0 leaves the models bitwise alone, 1 puts the states at the middle.
    coupling
        ``"paired"`` or ``"transport"``, see above.
    align
        ``"none"``, or ``"procrustes"`` for models whose states are in other bases.
    watch
        Told the index of a block and the states of all models that leave it, after the move.

    Returns
    -------
    Consensus
        Entered, it is called with the inputs of one model and returns the outputs of all.

    Notes
    -----
    Cost of ``paired``: the passes of the models and a few operations on their states. Each pass
    runs in a thread of its own, one at a time; taps and levers that the caller has entered do not
    act there and are refused. Padded tokens (``attention_mask``) neither move nor count.

    Raises
    ------
    InvalidInputError
        Here, for models that do not fit one another and settings out of range; from the call, for
        other depths, layers that are not there, states that are not finite, a cache of keys, or too
        few tokens to align.

    Examples
    --------
    >>> layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=True)
    >>> first, second = (
    ...     nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval() for _ in range(2)
    ... )
    >>> x = torch.randn(1, 5, 8)
    >>> with torch.no_grad(), consensus([first, second], layers=[1]) as both:
    ...     a, b = both(x)
    >>> torch.allclose(a, b)
    True
    """
    modules = members_of(models)
    number = isinstance(strength, (int, float)) and not isinstance(strength, bool)
    if not number or not 0 <= strength <= 1:
        raise InvalidInputError(
            f"strength must be a number from 0 (no move) to 1 (the middle); got {strength!r}."
        )
    for name, value, known in (
        ("coupling", coupling, ("paired", "transport")),
        ("align", align, ("none", "procrustes")),
    ):
        if value not in known:
            raise InvalidInputError(f"{name} must be {known[0]!r} or {known[1]!r}; got {value!r}.")
    return Consensus(
        modules,
        indices(layers, "layers"),
        float(strength),
        middle=paired_middle if coupling == "paired" else transport_middle,
        aligned=align == "procrustes",
        watch=watch,
    )


class Consensus:
    """Models whose states are drawn together, while the ``with`` block lasts.

    Made by `consensus`. `summary` and `table` say how far apart the states were.
    """

    def __init__(
        self,
        models: tuple[nn.Module, ...],
        layers: tuple[int, ...] | None,
        strength: float,
        *,
        middle: Middle,
        aligned: bool,
        watch: Watch | None,
    ) -> None:
        self._models, self._layers, self._strength = models, layers, strength
        self._middle, self._aligned, self._watch = middle, aligned, watch
        self._members: list[Member] = []
        self._sums: dict[int, _Sums] = {}
        self._products: dict[int, list[Tensor]] = {}
        self._rotations: dict[int, list[Tensor]] = {}
        self._fitted: defaultdict[int, int] = defaultdict(int)
        self._fitting = False
        self._mask: Tensor | None = None

    def __enter__(self) -> Self:
        if self._members:
            raise TapError("This consensus is entered already; make a second one.")
        self._sums, self._products, self._rotations = {}, {}, {}
        self._fitted.clear()
        self._members = [Member(model, self._layers) for model in self._models]
        return self

    def __exit__(self, *failure: object) -> None:
        members, self._members = self._members, []
        for member in members:
            member.close()

    def __call__(self, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Outputs of all models on the same inputs, their states drawn together."""
        if not self._members:
            raise TapError(
                "A consensus runs inside its `with` block: `with consensus(models) as both: "
                "both(**inputs)`."
            )
        refuse_inputs(self._models, kwargs)
        self._mask = kwargs.get("attention_mask")
        jobs = [lambda member=member: member.run(args, kwargs) for member in self._members]
        try:
            lanes = [member.lane for member in self._members]
            return tuple(in_lockstep(lanes, jobs, self._meet))
        finally:
            self._mask = None

    @torch.no_grad()
    def fit(self, *args: Any, **kwargs: Any) -> None:
        """Run the models apart on some inputs and learn how their states are turned.

        Calls add up. Without one, each pass is aligned by its own tokens.
        """
        if not self._aligned:
            raise InvalidInputError('There is nothing to fit; ask for align="procrustes".')
        self._fitting, self._rotations = True, {}
        try:
            self(*args, **kwargs)
        finally:
            self._fitting = False

    def summary(self) -> tuple[ConsensusChange, ...]:
        """What was done so far, one record per block in order of depth."""
        return tuple(self._sums[layer].change(layer) for layer in sorted(self._sums))

    @property
    def table(self) -> pd.DataFrame:
        """The summary as a tidy table: one line per block."""
        names = ("layer", "passes", "tokens", "distance", "matched", "unsolved")
        lines = [[getattr(change, name) for name in names] for change in self.summary()]
        return pd.DataFrame(lines, columns=names)

    def _meet(self, events: Sequence[Event]) -> Sequence[Any]:
        kinds = {event.kind for event in events}
        if kinds == {"ready"}:
            refuse_depths([len(event.value) for event in events], self._layers)
            return [None] * len(events)
        layers = {event.value[0] for event in events if event.kind == "block"}
        if kinds != {"block"} or len(layers) > 1:
            raise TapError(
                "The passes do not meet: they run through other numbers of blocks. Put the models "
                "in evaluation mode."
            )
        layer = layers.pop()
        states = [event.value[1] for event in events]
        refuse_states(states, layer)
        answers = self._answers(layer, states)
        if self._watch is not None:
            pairs = zip(states, answers, strict=True)
            self._watch(layer, tuple(s if a is None else a for s, a in pairs))
        return answers

    def _answers(self, layer: int, states: list[Tensor]) -> list[Tensor | None]:
        alike = all(torch.equal(states[0], state) for state in states[1:])
        if self._fitting:
            self._learn(layer, states)
        if self._fitting or not self._strength or alike:  # nothing to move: bitwise themselves
            return [None] * len(states)
        first = states[0]
        dtype = torch.promote_types(first.dtype, torch.float32)
        wide = [state.to(first.device, dtype) for state in states]
        turns = self._turns(layer, wide) if self._aligned else None
        turned = wide if turns is None else [x @ r for x, r in zip(wide, turns, strict=True)]
        there = self._counted(first)
        found = self._middle(turned, there)
        shifts = found.shifts
        self._sums.setdefault(layer, _Sums()).add(turned, there, found)
        if turns is not None:
            shifts = [shift @ r.mT for shift, r in zip(shifts, turns, strict=True)]
        return [
            torch.add(x, shift, alpha=self._strength).to(state.device, state.dtype)
            for x, shift, state in zip(wide, shifts, states, strict=True)
        ]

    def _counted(self, state: Tensor) -> Tensor | None:
        """Which tokens are no padding, ``[batch, tokens]``; None for all."""
        if self._mask is None:
            return None
        if self._mask.shape != state.shape[:-1]:
            raise InvalidInputError(
                f"attention_mask must be [batch, tokens] = {list(state.shape[:-1])}, so that "
                f"padding is known; got shape {list(self._mask.shape)}."
            )
        return self._mask.to(state.device) != 0

    def _learn(self, layer: int, states: list[Tensor]) -> None:
        there = self._counted(states[0])
        rows = [_rows(state.to(states[0].device), there).double() for state in states]
        new = [x.mT @ rows[0] for x in rows]
        old = self._products.get(layer)
        pairs = new if old is None else [a + b for a, b in zip(old, new, strict=True)]
        self._products[layer] = pairs
        self._fitted[layer] += len(rows[0])

    def _turns(self, layer: int, wide: list[Tensor]) -> list[Tensor]:
        """Rotation of each model to the first one; that of the first is the identity."""
        if layer in self._rotations:
            return self._rotations[layer]
        own = layer not in self._products
        if own:
            self._learn(layer, [x.detach() for x in wide])
        tokens, products = self._fitted[layer], self._products[layer]
        if own:  # the next pass has other tokens
            del self._products[layer], self._fitted[layer]
        least = TOKENS_PER_FEATURE * wide[0].shape[-1]
        if tokens < least:
            raise InvalidInputError(
                f"An alignment of states with {wide[0].shape[-1]} features needs {least} tokens; "
                f"got {tokens}. Call fit(**inputs) on more text before the pass, or give a larger "
                "batch."
            )
        turns = [torch.eye(len(products[0])).to(wide[0])]
        turns += [orthogonal_map(each).to(wide[0]) for each in products[1:]]
        if not own:
            self._rotations[layer] = turns
        return turns


class _Sums:
    """Streaming sums after one block."""

    def __init__(self) -> None:
        self._passes = self._tokens = self._unsolved = 0
        self._apart = self._size = 0.0
        self._matched: float | None = None

    def add(self, states: Sequence[Tensor], there: Tensor | None, found: Meeting) -> None:
        """One more pass: distances are those of paired tokens, whatever the coupling."""
        shifts = found.shifts
        if found.matched is not None:
            shifts = paired_middle(states, there).shifts
        rows = [_rows(state.detach(), there) for state in states]
        tokens = rows[0].shape[0]
        self._apart += sum(float(shift.detach().norm()) ** 2 for shift in shifts)
        self._size += sum(float(row.norm()) ** 2 for row in rows)
        self._passes, self._tokens = self._passes + 1, self._tokens + tokens
        self._unsolved += found.unsolved
        if found.matched is not None:
            self._matched = (self._matched or 0.0) + found.matched * tokens

    def change(self, layer: int) -> ConsensusChange:
        """What the sums say."""
        return ConsensusChange(
            layer=layer,
            passes=self._passes,
            tokens=self._tokens,
            distance=math.sqrt(self._apart / self._size) if self._size else math.nan,
            matched=None if self._matched is None else self._matched / max(self._tokens, 1),
            unsolved=self._unsolved,
        )


def _rows(state: Tensor, there: Tensor | None) -> Tensor:
    """States of tokens that are no padding, ``[tokens, features]``."""
    return state.reshape(-1, state.shape[-1]) if there is None else state[there]
