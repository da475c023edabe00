"""What an examination of a model found: a record, a card, and a document of plain values."""

from dataclasses import dataclass
from typing import Any

from flowscope.lab.cards import card, fact_table, text_card
from flowscope.models.loading import Kind
from flowscope.models.reading.cost import Estimate
from flowscope.records import Unavailable
from flowscope.tap import Chain, Tail, WriteKind

__all__ = ["Examination", "Obstacle"]

_REFUSED = Unavailable("the model is refused")


@dataclass(frozen=True, kw_only=True)
class Obstacle:
    """Something that cannot be measured, and the reason."""

    what: str
    because: str


@dataclass(frozen=True, kw_only=True, eq=False)
class Examination:
    """What the doctor found.

    Attributes
    ----------
    model, kind
        Where the model came from and what it does.
    blocks
        Length of the depth (0: there is none).
    attention_calls
        Attention calls of one forward pass.
    writes
        Kinds of the additions that most blocks of the depth make to their main stream.
    tail
        What follows the last block, or why it cannot be replayed.
    can, cannot
        What can be measured, in words; what cannot, each with its reason.
    chains
        Every chain that was found, in call order.
    seam
        How attention is read: ``"sdpa"`` in place, ``"interface"`` by switching the backend, or why
        not at all.
    listening
        How attention is heard: by its ``"name"`` (nothing else of a pass is looked at), by a torch
        function ``"mode"`` that looks at every function, or through the ``"interface"`` of the
        backend; why not at all.
    estimate
        Time and memory of the measuring pass of an audit, or why an audit has none.
    reading_error
        Largest change of the output when it is only read; 0.0 is bitwise equal.
    refused
        Whether the model cannot be read at all.
    fed
        What texts become before the model sees them, in words; empty without a tokenizer.
    mode
        What was in training mode and was examined in evaluation mode; empty where nothing was.
    unwrapped
        Wrappers that were taken off the model.
    """

    model: str
    kind: Kind
    blocks: int
    attention_calls: int
    writes: tuple[WriteKind, ...]
    tail: Tail | Unavailable
    can: tuple[str, ...]
    cannot: tuple[Obstacle, ...]
    chains: tuple[Chain, ...]
    seam: str | Unavailable
    reading_error: float | Unavailable
    refused: bool
    listening: str | Unavailable = _REFUSED
    estimate: Estimate | Unavailable = _REFUSED
    fed: str = ""
    mode: str = ""
    unwrapped: tuple[str, ...] = ()

    @property
    def remarks(self) -> list[tuple[str, str]]:
        """What is said of the model beside what can be measured: what it is fed, its state."""
        cost = self.estimate
        remarks = {
            "fed": self.fed,
            "mode": self.mode,
            "unwrapped": ", ".join(self.unwrapped),
            "estimate": "" if isinstance(cost, Unavailable) else cost.words,
        }
        return [(name, words) for name, words in remarks.items() if words]

    @property
    def tail_words(self) -> str:
        """The tail in one line: its operations and what they lead to."""
        if isinstance(self.tail, Unavailable):
            return "cannot be replayed"
        steps = ", ".join(name.strip("_") for name in self.tail.operations) or "nothing"
        return f"{steps} → {self.tail.target} ({self.tail.width} wide)"

    def __repr__(self) -> str:
        state = "refused" if self.refused else "readable"
        return text_card(f"doctor · {self.kind}", f"{self.model} ({state})", self._facts)

    __str__ = __repr__

    def _repr_html_(self) -> str:
        """Return the card that a notebook shows: what can be measured, and what cannot."""
        state = ("refused", "fails") if self.refused else ("readable", "holds")
        return card(f"doctor · {self.kind}", self.model, [state], fact_table(self._facts))

    @property
    def _facts(self) -> list[tuple[str, str]]:
        """Names and values of the card."""
        depth = f"{self.blocks} blocks, {self.attention_calls} attention calls"
        can = [("can" if k == 0 else "", line) for k, line in enumerate(self.can)]
        cannot = [
            ("cannot" if k == 0 else "", f"{obstacle.what}: {obstacle.because}")
            for k, obstacle in enumerate(self.cannot)
        ]
        facts = (
            []
            if self.refused
            else [
                ("depth", depth),
                ("writes", " + ".join(self.writes) or "none can be separated"),
                ("tail", self.tail_words),
                *self.remarks,
            ]
        )
        return facts + can + cannot

    def to_json(self) -> dict[str, Any]:
        """A document of plain values; what is missing is null, its reason is under ``cannot``."""
        tail = self.tail
        return {
            "model": self.model,
            "kind": self.kind,
            "blocks": self.blocks,
            "attention_calls": self.attention_calls,
            "writes": list(self.writes),
            "tail": None
            if isinstance(tail, Unavailable)
            else {
                "target": tail.target,
                "operations": list(tail.operations),
                "positionwise": tail.positionwise,
                "width": tail.width,
                "error": tail.error,
            },
            "can": list(self.can),
            "cannot": [{"what": o.what, "because": o.because} for o in self.cannot],
            "refused": self.refused,
            "fed": self.fed,
            "mode": self.mode,
            "unwrapped": list(self.unwrapped),
            "seam": self.seam if isinstance(self.seam, str) else None,
            "listening": self.listening if isinstance(self.listening, str) else None,
            "estimate": None if isinstance(self.estimate, Unavailable) else self.estimate.to_json(),
            "reading_error": self.reading_error if isinstance(self.reading_error, float) else None,
            "chains": [
                {
                    "name": chain.name,
                    "streams": list(chain.streams),
                    "blocks": [block.path for block in chain.blocks],
                }
                for chain in self.chains
            ],
        }
