"""Measure how far own and transplanted steps move the output, by the tail mass of the token."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from flowscope.instruments.audit.depth_pass import DepthReading
from flowscope.instruments.audit.locking import tables
from flowscope.instruments.audit.reading import depth_of, depth_reading, shared_pieces
from flowscope.instruments.audit.subject import AuditBench
from flowscope.lab.claim import Abstention
from flowscope.probes import (
    Arrays,
    InputBatch,
    Piece,
    TapProbe,
    TransplantProbe,
    positions_readout,
    spaced_rows,
)
from flowscope.records import Unavailable
from flowscope.tap import BlockPass, Chain, Operands, Tail

__all__ = ["TransplantReading", "measure", "probes"]

_NAME = "transplants"
_FEWEST = 3  # a token and its two donors


def probes(bench: AuditBench) -> dict[str, TapProbe]:
    """Return what the stage reads of every prompt; nothing where it is switched off."""
    tokens, config = bench.config.locking_tokens, bench.config
    if not tokens:
        return {}
    reading = TransplantReading(
        tokens=tokens, seed=config.seed, operands=config.readout, beside=depth_reading(bench)
    )
    return {_NAME: reading}


def measure(bench: AuditBench) -> None:
    """Write the locking curve and the slopes of all layers."""
    reading = depth_of(bench).reading
    if reading.space != "output":
        raise Abstention(reading.because)
    if not bench.config.locking_tokens:
        raise Abstention("the measurement is switched off (locking_tokens is 0)")
    arrays = _joined(shared_pieces(bench)[_NAME])
    if not arrays:
        raise Abstention(_too_short(bench.config.locking_tokens))
    first = _first_of_equals(bench.subject.prompts.items)
    chosen = np.isin(arrays["prompt"], first)
    arrays = {name: values[chosen] for name, values in arrays.items()}
    bench.put("locking", tables.locking_table(reading.depth))
    slopes, prompts = tables.slope_tables(arrays, seed=bench.config.seed)
    bench.put("locking_slopes", tables.with_bound(slopes, reading.depth))
    bench.put("locking_prompts", prompts)


class TransplantReading(TapProbe):
    """Own and transplanted steps of a few tokens per prompt.

    Parameters
    ----------
    tokens
        At most so many tokens of each prompt, evenly spaced.
    seed
        Of the donors.
    operands
        What the output product reads, see `Tail.widened`.
    beside
        A probe of the same pass that reads the logits of all tokens before this one does.
    """

    hears = ("states",)
    purpose = "depth to audit"
    prefix = f"{_NAME}-"

    def __init__(
        self,
        *,
        tokens: int,
        seed: int,
        operands: Operands = "exact",
        beside: DepthReading | None = None,
    ) -> None:
        self._tokens, self._seed, self._operands = tokens, seed, operands
        self._beside = beside
        self._probe: TransplantProbe | None = None
        self._because = ""

    def open(self, chain: Chain, tail: Tail | Unavailable) -> None:
        """Read the output of every token, or note why a token has none of its own."""
        if isinstance(tail, Unavailable):
            self._because = tail.reason
        elif tail.target != "logits":
            self._because = (
                f"the model has no distribution over outcomes: its output is {tail.target}"
            )
        elif not tail.positionwise:
            self._because = (
                "the model pools its positions before the output: a token has no output of its own"
            )
        else:
            readout = positions_readout(tail, self._operands)
            self._probe = TransplantProbe(readout, seed=self._seed)

    def begin(self, batch: InputBatch) -> None:
        """Start a batch."""
        if self._probe is not None:
            rows = spaced_rows(batch.prompts, batch.named, tokens=self._tokens)
            self._probe.begin(rows, None if self._beside is None else self._beside.logits)

    def block(self, event: BlockPass) -> None:
        """Read one step of depth."""
        if self._probe is not None:
            self._probe.update(event)

    def end(self) -> Piece:
        """Return the scalars of the batch."""
        if self._probe is None:
            return Piece(meta={"because": self._because})
        self._probe.end()
        arrays = self._probe.arrays()
        self._probe.clear()
        return Piece(arrays=arrays, meta={"because": ""})


def _joined(pieces: Sequence[Piece]) -> Arrays:
    """Tables of all batches as one; empty where no prompt has enough tokens."""
    because = next((piece.meta["because"] for piece in pieces if piece.meta["because"]), "")
    if because:
        raise Abstention(because)
    parts = [piece.arrays for piece in pieces if piece.arrays]
    return {n: np.concatenate([part[n] for part in parts]) for n in parts[0]} if parts else {}


def _too_short(tokens: int) -> str:
    """Return why no prompt could be compared."""
    if tokens < _FEWEST:
        return (
            f"locking_tokens is {tokens}: a token is compared with two others of its prompt, so "
            f"that at least {_FEWEST} tokens of each are needed"
        )
    return (
        f"no prompt has {_FEWEST} tokens: a token is compared with two others of its prompt. Give "
        "longer prompts"
    )


def _first_of_equals(items: Sequence[NDArray[np.generic]]) -> list[int]:
    """Numbers of the prompts that repeat no earlier one: a repeated prompt is no new evidence."""
    numbers: dict[bytes, int] = {}
    for number, item in enumerate(items):
        numbers.setdefault(np.ascontiguousarray(item).tobytes(), number)
    return list(numbers.values())
